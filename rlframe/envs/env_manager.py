"""N envs stepped together: the contract, and the manager that steps them one after the other in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import NO_INFO, Array, EnvSpec, IntArray, TimeStep
from rlframe.envs import contract, env_state
from rlframe.envs.base_env import EnvFactory, spec_of
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.utils.field import Configurable

if TYPE_CHECKING:
    import gymnasium


class IEnvManager(Configurable, ABC):
    """N envs whose steps come back as columns.

    Whoever drives it calls ``step`` for envs that are ``ready`` and ``reset`` for those that finished. ``obs`` holds what
    each env is to be acted on next.
    """

    spec: EnvSpec
    """Spaces and limits of one env."""
    env_num: int
    """Number of envs, N."""
    obs: Array
    """Observation that each env waits with, [N, ...]; never written again once ``step`` or ``reset`` replaced it twice."""

    can_hold = True
    """Whether ready envs may be left out of a step; a vector env always steps all of its envs."""

    @classmethod
    @abstractmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> IEnvManager:
        """Makes a manager of ``env_num`` envs of a factory."""

    @abstractmethod
    def launch(self) -> None:
        """Makes the envs, if that has not happened yet."""

    @property
    @abstractmethod
    def ready(self) -> IntArray:
        """Ids of the envs that wait for an action, [n]."""

    @abstractmethod
    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        """Begins a new episode in the given envs, or in all.

        Args:
            env_id: Which envs, [n]; all where not given.
            seed: Seed of each, or ``None`` to go on with the env's own generator. An env that resets itself uses only the
                seeds given when all envs are reset.
        """

    @abstractmethod
    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        """Steps the given envs, which must be ready, and returns those that are through with a step."""

    def render(self, env_id: int) -> Array:
        """Returns a picture of one env, uint8 [H, W, C]."""
        raise NotImplementedError(f'{type(self).__name__} draws no pictures')

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every env, as plain data."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> IntArray:
        """Puts every env back into the state of ``state_dict()``.

        Returns:
            The envs whose state could not be had, [n]; they begin a new episode.
        """

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether there are no envs at present."""

    @abstractmethod
    def close(self) -> None:
        """Closes the envs; may be called twice."""


@ENV_MANAGER_REGISTRY.register('base')
class BaseEnvManager(IEnvManager):
    """Steps N envs one after the other in this process.

    Args:
        env_fn: Makes one env each, N of them.
        cfg: Options of the manager.
    """

    def __init__(
        self, env_fn: Sequence[Callable[[], gymnasium.Env[Any, Any]]], cfg: EasyDict | None = None
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._env_fn = list(env_fn)
        self.env_num = len(self._env_fn)
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._all = np.arange(self.env_num)
        self.launch()

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> BaseEnvManager:
        return cls([lambda: factory.make(render_mode)] * env_num, cfg)

    def launch(self) -> None:
        if self._envs:
            return
        self._envs = [make() for make in self._env_fn]
        self.spec = spec_of(self._envs[0])
        space = self.spec.observation_space
        contract.check_spaces(self._envs, self.spec)
        self._steps = np.zeros(self.env_num, np.int64)  # env steps of the running episode
        self._episodes = np.zeros(self.env_num, np.int64)
        self._unchecked = np.full(self.env_num, contract.CHECKED_STEPS)  # steps still to be checked in full
        self._checking = True  # whether there are any
        shape, dtype = (self.env_num, *space.shape), space.dtype  # type: ignore[misc]  # check_spaces refused the rest
        self._sets = [np.zeros(shape, dtype) for _ in range(2)]
        self.obs = np.zeros(shape, dtype)

    @property
    def ready(self) -> IntArray:
        return self._all

    @property
    def closed(self) -> bool:
        return not self._envs

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self.launch()
        ids = self._all if env_id is None else env_id
        self.obs = self.obs.copy()
        for i, s in zip(ids, seed if seed is not None else [None] * len(ids), strict=True):
            answer = self._envs[i].reset(seed=s)
            self.obs[i] = contract.first_obs(
                answer, self.spec, int(i), self._episodes[i] < contract.CHECKED_STEPS
            )
        self._steps[ids] = 0
        self._episodes[ids] += 1

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        envs, listed = self._envs, env_id.tolist()
        actions = list(action)
        self._steps[env_id] += 1
        if self._checking:
            answers = [self._checked_step(i, a) for i, a in zip(listed, actions, strict=True)]
        else:
            answers = [envs[i].step(a) for i, a in zip(listed, actions, strict=True)]
        try:
            obs, reward, terminated, truncated, infos = zip(*answers, strict=True)
            count = len(listed)
            self._sets.reverse()
            rows = self._sets[0][:count]
            if rows.ndim == 1:
                rows[:] = obs
            else:
                np.concatenate(obs, out=rows.reshape(-1, *rows.shape[2:]))
            step = TimeStep(
                rows,
                np.array(reward, np.float32),
                np.array(terminated, np.bool_),
                np.array(truncated, np.bool_),
                infos if any(infos) else (NO_INFO,) * count,
                env_id,
            )
        except (TypeError, ValueError) as error:
            for i, answer in zip(listed, answers, strict=True):
                contract.check_step(answer, self.spec, i, *self._place(i))
            raise error
        contract.check_finite(step, self._place)
        if count == self.env_num and env_id is self._all:
            self.obs = rows
        else:
            self.obs = self.obs.copy()
            self.obs[env_id] = rows
        return step

    def _checked_step(self, env: int, action: Any) -> Any:
        contract.check_action(action, self.spec, env)
        answer = self._envs[env].step(action)
        if self._unchecked[env]:
            self._unchecked[env] -= 1
            self._checking = bool(self._unchecked.any())
            contract.check_step(answer, self.spec, env, *self._place(env))
        return answer

    def _place(self, env: int) -> tuple[int, int]:
        return int(self._episodes[env]), int(self._steps[env])

    def render(self, env_id: int) -> Array:
        return np.asarray(self._envs[env_id].render())

    def state_dict(self) -> dict[str, Any]:
        states = [env_state.capture(env) for env in self._envs]
        return {
            'obs': self.obs.copy(),
            'steps': self._steps.copy(),
            'episodes': self._episodes.copy(),
            'unchecked': self._unchecked.copy(),
            'envs': {str(i): state for i, state in enumerate(states) if state is not None},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self.launch()
        self.obs = state['obs'].copy()
        self._steps, self._episodes = state['steps'].copy(), state['episodes'].copy()
        self._unchecked = state['unchecked'].copy()
        self._checking = bool(self._unchecked.any())
        for i, saved in state['envs'].items():
            env_state.restore(self._envs[int(i)], saved)
        lost = np.array([i for i in range(self.env_num) if str(i) not in state['envs']], np.int64)
        if len(lost):
            self.reset(lost)
        return lost

    def close(self) -> None:
        envs, self._envs = self._envs, []
        for env in envs:
            env.close()
