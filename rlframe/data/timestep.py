"""The result of one step of an env manager, and the description of an env for policies."""

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
"""The info of a step without information; compared by identity."""


class TimeStep(NamedTuple):
    """One step of n <= N envs. The arrays belong to the manager and stay unchanged until its next step but one."""

    obs: Array
    """Observation after the step, [n, ...]; for an env that finished, its true last one."""
    reward: FloatArray
    """As the env gave it, float64 [n]; rows for training hold float32."""
    terminated: BoolArray
    """True where the episode ended in a terminal state, [n]."""
    truncated: BoolArray
    """True where the episode was cut off, by a time limit for example, [n]."""
    info: Sequence[Mapping[str, Any]]
    """Info of each env, n mappings."""
    env_id: IntArray
    """Env id of each row, [n]."""

    @property
    def done(self) -> BoolArray:
        """True where the episode is over, either way, [n]."""
        return self.terminated | self.truncated


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The description of an env that a policy is built from."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    player_num: int = 1
    """Number of players, P."""
    reward_range: tuple[float, float] = (-float('inf'), float('inf'))
    name: str = ''
    """Id or class of the env, for error messages."""
    reward_threshold: float | None = None
    """Mean return at which the env's authors call it solved."""
    max_episode_steps: int | None = None
    """Time limit in env steps."""
    render_fps: int | None = None
    """Env steps per second of video."""
    player: EnvSpec | None = None
    """For an env of several players: the spec of a single player, from which policies are built."""
