"""What an env manager returns for one step, and what a policy must know of an env."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import gymnasium

IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[Any]

NO_INFO: Mapping[str, Any] = {}
"""The info of a step that had nothing to tell; compared by identity."""


class TimeStep(NamedTuple):
    """One step of n <= N envs. Arrays belong to the manager and stay as they are until its next step but one."""

    obs: Array
    """Observation after the step, [n, ...]; of an env that finished, its true last one."""
    reward: FloatArray
    """float32 [n]."""
    terminated: BoolArray
    """True where the episode ended in a terminal state, [n]."""
    truncated: BoolArray
    """True where the episode was cut off, by a time limit for example, [n]."""
    info: Sequence[Mapping[str, Any]]
    """What each env said beside it, n mappings."""
    env_id: IntArray
    """Which env each row is of, [n]."""

    @property
    def done(self) -> BoolArray:
        """True where the episode is over, either way, [n]."""
        return self.terminated | self.truncated


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a policy must know of an env."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    player_num: int = 1
    """Players, P."""
    reward_range: tuple[float, float] = (-float('inf'), float('inf'))
    name: str = ''
    """Id or class of the env, for error messages."""
    reward_threshold: float | None = None
    """Mean return at which its authors call the env solved."""
    max_episode_steps: int | None = None
    """Time limit in env steps."""
    render_fps: int | None = None
    """Env steps a second in a film of it."""
    player: EnvSpec | None = None
    """Of an env of several players: what each of them sees and does, which is what a policy must know."""
