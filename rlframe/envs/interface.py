"""IEnvManager: the interface of every manager of N envs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, EnvSpec, IntArray, TimeStep
from rlframe.envs.base_env import EnvFactory
from rlframe.utils.field import Configurable

if TYPE_CHECKING:
    pass


class IEnvManager(Configurable, ABC):
    """N envs whose steps are returned as columns.

    The caller calls ``step`` for envs that are ``ready`` and ``reset`` for envs that finished. ``obs`` has the
    observation of each env for the next action.
    """

    spec: EnvSpec
    """Spaces and limits of one env."""
    env_num: int
    """Number of envs, N."""
    obs: Array
    """Current observation of each env, [N, ...]; not overwritten until ``step`` or ``reset`` has replaced it twice."""

    unsaved: Mapping[int, str] = MappingProxyType({})
    """Envs whose state could not be saved at the last ``restart_lost()`` or restored since then, and why."""

    can_hold = True
    """Whether ready envs may be left out of a step; a vector env always steps all of its envs."""
    why_inexact = ''
    """Why two runs with the same seed may differ, such as envs that answer in any order; empty if they cannot."""
    can_begin_anew = True
    """Whether an env can be reset in the middle of an episode while others go on; one that resets itself cannot."""

    given_seeds: Mapping[int, int] = MappingProxyType({})
    """Seeds that ``seed`` was given and that no reset has used yet, by env."""
    _repeats = False  # whether every episode of an env begins with its given seed

    def seed(self, seed: int | Sequence[int] | Mapping[int, int], dynamic_seed: bool | None = None) -> None:
        """Sets the seeds of the next reset of the envs, of which a collector then begins with these.

        An evaluator derives the seeds of its fixed list of episodes from the first one.

        Args:
            seed: Of each env, by position or by env id; an int is that of env 0, and env i gets ``seed + i``.
            dynamic_seed: False: every episode of an env begins with its seed, in managers that can reset single envs.
                By default, later episodes continue with the env's own generator.
        """
        if isinstance(seed, int | np.integer):
            seed = range(int(seed), int(seed) + self.env_num)
        pairs = seed.items() if isinstance(seed, Mapping) else enumerate(seed)
        self.given_seeds = {int(env): int(own) for env, own in pairs}
        if wrong := [env for env in self.given_seeds if not 0 <= env < self.env_num]:
            raise ValueError(f'seed() got seeds for the envs {wrong}; there are {self.env_num} envs')
        self._repeats = dynamic_seed is False

    def _with_given(
        self, env_id: IntArray | None, seed: Sequence[int | None] | None
    ) -> Sequence[int | None] | None:
        """Returns the seeds of a reset: its own ones, or else those that ``seed`` was given for these envs."""
        if not self.given_seeds:
            return seed
        ids = range(self.env_num) if env_id is None else env_id.tolist()
        due = [self.given_seeds.get(env) for env in ids]
        if not self._repeats:
            self.given_seeds = {env: own for env, own in self.given_seeds.items() if env not in ids}
        return due if seed is None and any(own is not None for own in due) else seed

    @classmethod
    @abstractmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> IEnvManager:
        """Creates a manager of ``env_num`` envs of a factory."""

    @abstractmethod
    def launch(self) -> None:
        """Creates the envs, unless they exist."""

    @property
    @abstractmethod
    def ready(self) -> IntArray:
        """Ids of the envs that wait for an action, [n]."""

    @property
    def alive(self) -> IntArray:
        """Ids of the envs that were not dropped, [n]; all, unless the manager may continue without a failing env."""
        return np.arange(self.env_num)

    @abstractmethod
    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        """Begins a new episode in the given envs, or in all.

        Args:
            env_id: The envs, [n]; all if not given.
            seed: Seed of each, or ``None`` to continue with the env's own generator. An env that resets itself uses
                only the seeds given when all envs are reset.
        """

    @abstractmethod
    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        """Steps the given envs, which must be ready, and returns the finished steps."""

    def render(self, env_id: int) -> Array:
        """Returns a picture of one env, uint8 [H, W, C].

        Raises:
            EnvError: If the env cannot render.
        """
        raise NotImplementedError(f'{type(self).__name__} cannot be rendered')

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every env, as plain data."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> IntArray:
        """Restores every env to the state of ``state_dict()``.

        Returns:
            The envs whose state could not be restored, [n]; they begin a new episode.
        """

    def restart_lost(self) -> IntArray:
        """Begins a new episode, with a seed derived from its own first one, in each env whose state cannot be saved.

        Call it before every ``state_dict()``, so that a resumed run equals an uninterrupted one: ``load_state_dict``
        then begins the same episode.

        Returns:
            The envs that began a new episode, [n].
        """
        return np.zeros(0, np.int64)

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the envs are closed."""

    @abstractmethod
    def close(self) -> None:
        """Closes the envs; may be called twice."""
