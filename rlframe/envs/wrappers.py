"""Wrappers of envs: ``CheckedEnv`` for those of a vector env, ``SeededEnv`` for DI-engine's loops, ``WeightedReward`` for several rewards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlframe.data.observation import BAD_OBS, pack_into, zero_obs
from rlframe.data.timestep import spec_of
from rlframe.envs import contract
from rlframe.envs.faults import crashed
from rlframe.errors import ConfigError, EnvStartError, RLFrameError

if TYPE_CHECKING:
    Env = gymnasium.Env[Any, Any]
    Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    Wrapper = gymnasium.Wrapper

NUMBERS = float, int, np.floating
"""Usual types of a reward."""
FLAGS = bool, np.bool_
"""Valid types of ``terminated`` and ``truncated``."""


class CheckedEnv(Wrapper):
    """Checks the first return values of an env in full, and afterwards those that look unusual.

    Args:
        env: The env.
        index: Its index in the vector env.
        remarks: Receives remarks.
        unchecked: First env steps that are checked in full.
    """

    def __init__(
        self,
        env: Env,
        index: int,
        remarks: contract.Remarks,
        unchecked: int = contract.CHECKED_STEPS,
    ) -> None:
        super().__init__(env)
        self._index, self._remarks = index, remarks
        self._declared = spec_of(env)
        self._last = zero_obs(self._declared.observation_space)
        self._shape, self._dtype = self._last.shape, self._last.dtype
        self._episode = self._number = 0
        self._acts_in_box = type(self._declared.action_space).__name__ == 'Box'
        self._unchecked = unchecked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._episode, self._number = self._episode + 1, 0
        given = {'options': options} if options else {}  # an env need not take any
        answer = self._called('reset()', lambda: self.env.reset(seed=seed, **given))
        contract.first_obs(answer, self._declared, self._index, self._episode, self._remarks)
        return answer

    def step(self, action: Any) -> Any:
        if self._acts_in_box:
            action = np.asarray(action)  # a vector env makes a number of an array of shape ()
        if self._unchecked:
            contract.check_action(action, self._declared, self._index)
        self._number += 1
        answer = self._called('step()', lambda: self.env.step(action))
        try:
            obs, reward, terminated, truncated, info = answer
            if self._dtype.names:
                pack_into(obs, self._last)
                usual = isinstance(reward, NUMBERS)
            else:
                usual = obs.shape == self._shape and obs.dtype == self._dtype and isinstance(reward, NUMBERS)
        except (*BAD_OBS, AttributeError):
            usual = False
        else:
            usual = usual and isinstance(terminated, FLAGS) and isinstance(truncated, FLAGS)
            usual = usual and isinstance(info, dict)
        if self._unchecked or not usual:
            place = self._index, self._episode, self._number
            contract.check_step(answer, self._declared, *place, self._remarks)
            if self._unchecked:
                self._unchecked -= 1
        if answer[2] or answer[3]:  # the reset that follows may write to the same array
            answer = (copy.deepcopy(answer[0]), *answer[1:])
        return answer

    def _called(self, what: str, call: Callable[[], Any]) -> Any:
        """Returns what the env returns.

        Raises:
            EnvStartError: If its first reset raises; as all, with the env, its episode and step.
            EnvCrashedError: If another call raises.
        """
        try:
            return call()
        except RLFrameError:
            raise
        except Exception as error:
            told = crashed(self._index, what, self._episode, self._number, error)
            is_start = what == 'reset()' and self._episode == 1
            raise (EnvStartError(told.message) if is_start else told) from error

    def get_state(self) -> dict[str, int]:
        """Returns the counters; the env has its own state."""
        return {'episode': self._episode, 'number': self._number, 'unchecked': self._unchecked}

    def set_state(self, state: dict[str, int]) -> None:
        """Continues from ``get_state()``."""
        self._episode, self._number = state['episode'], state['number']
        self._unchecked = state['unchecked']


class SeededEnv(Wrapper):
    """An env with DI-engine's method ``seed``."""

    _given: int | None = None  # seed of the next episode
    _repeats = False

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Sets the seed of the next episode; with ``dynamic_seed=False``, of every later one, too."""
        self._given, self._repeats = int(seed), not dynamic_seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, with the given seed if none is passed."""
        used = self._given if seed is None else seed
        self._given = self._given if self._repeats else None
        return self.env.reset(seed=used, options=options)


class WeightedReward(Wrapper):
    """Makes one reward of the vector of rewards that a multi-objective env gives, as those of MO-Gymnasium do.

    The vector is ``info['vector_reward']``, shape [objective]. MO-Gymnasium's own ``LinearReward`` takes an array as its
    weights, which no command line can write.

    Args:
        env: The env.
        weights: Weights of the objectives, whose products with the rewards are summed.

    Raises:
        ConfigError: If the env has another number of objectives.
    """

    def __init__(self, env: Env, weights: Sequence[float]) -> None:
        super().__init__(env)
        self._weights = np.asarray(weights, np.float64)
        space = getattr(env.unwrapped, 'reward_space', None)
        shape = (len(self._weights),) if space is None else space.shape
        if self._weights.shape != shape:
            message = f'the env gives rewards of shape {shape}'
            raise ConfigError(message, where='env.wrappers', got=weights, expected='a weight for each')

    def step(self, action: Any) -> Any:
        obs, rewards, terminated, truncated, info = self.env.step(action)
        reward = float(self._weights @ np.asarray(rewards, np.float64))
        return obs, reward, terminated, truncated, {**info, 'vector_reward': rewards}
