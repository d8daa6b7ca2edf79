"""RewardModel: what a run pays for beside, or in place of, the reward of its env."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from rlframe.data.faces import CollectMode
from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray
from rlframe.errors import ConfigError
from rlframe.utils.field import Configurable, Section, option
from rlframe.utils.seed import component_rng

Play: TypeAlias = Callable[[CollectMode, int], list[Batch]]
"""Plays a number of whole episodes."""
Likelihood: TypeAlias = Callable[[Array, Array], FloatArray]
"""Maps observations and actions of rows to logarithms of their probabilities."""
MARKS = 'env_id', 'episode_step'
"""Columns that say which env a row is from, and how many steps of its episode came before it."""


class RewardModelConfig(Section):
    """Options of every reward model."""

    weight: float = option(
        1.0, range='(0, inf)', doc='factor of what it pays, beside the reward of the env', may_change=True
    )
    normalize: bool = option(
        True, doc='whether what it pays is divided by its running standard deviation first', may_change=True
    )


class RewardModel(Configurable, ABC):
    """Pays for rows, in the order of time of each env.

    After each collection, a run calls ``collected`` with the new rows, then ``learn``, and ``reward``: of a stored model, or of
    any model of a policy that learns from fresh rounds, once for these rows; else for each batch that a replay buffer samples.

    Rows are columns [M, ...] as the env gives them: ``obs``, ``next_obs``, ``action`` (as the policy keeps it: Box actions lie
    in [-1, 1]), ``reward``, ``terminated``, ``truncated`` and, when they were just collected, ``env_id`` and
    ``episode_step`` (``MARKS``). Rows of an env follow each other in time; its last episode may go on in the next call.

    Args:
        cfg: Options; missing ones take their defaults.
        spec: Spaces of the env.
        seed: Seed of its random numbers.
        device: Where its networks compute.
    """

    _cfg: RewardModelConfig
    replaces_reward: ClassVar[bool] = False
    """Whether it is paid in place of the env's reward, as imitation; else it is added to it, as curiosity."""
    is_stored: ClassVar[bool] = False
    """Whether rows keep what they were paid when they were collected, as with counts; else each sampled batch is paid anew."""

    needs_likelihood: ClassVar[bool] = False
    """Whether it asks how likely actions are by the policy; see ``likelihood``."""
    likelihood: Likelihood | None = None
    """Logarithms of the probabilities of actions as the policy keeps them, [M, ...], at observations, [M, ...]: float32 [M]."""

    needs_episodes: ClassVar[bool] = False
    """Whether it plays episodes of its own; see ``play``."""
    play: Play | None = None
    """Plays so many whole episodes in the envs of the run, by a collect face, and returns the rows of each, [T, ...]."""

    def __init__(
        self, cfg: Mapping[str, Any] | None, spec: EnvSpec, *, seed: int = 0, device: str = 'cpu'
    ) -> None:
        self._cfg: Any = self.resolve_config(cfg)
        self.spec, self.device = spec, device
        self.rng = component_rng(seed, 'reward_model')
        """Its own generator; it is saved."""

    @classmethod
    def check_spec(cls, cfg: Any, spec: EnvSpec) -> list[ConfigError]:
        """Returns the mistakes of options for an env; ``where`` is the key within its own section."""
        return []

    def collected(self, rows: Batch) -> None:
        """Takes rows that were just collected, [M, ...]."""

    @abstractmethod
    def reward(self, rows: Batch) -> FloatArray:
        """Returns what it pays for rows, float [M], before normalisation and weight."""

    def learn(self) -> dict[str, float]:
        """Trains once on what it has taken, and returns values to log; by default it does nothing."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Returns all that the next calls depend on; extend it with ``super()``."""
        return {'rng': self.rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; extend it with ``super()``."""
        self.rng.bit_generator.state = dict(state['rng'])
