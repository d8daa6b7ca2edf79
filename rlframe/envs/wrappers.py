"""Wrappers of envs: ``SeededEnv`` for DI-engine's loops, ``WeightedReward`` for several rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlframe.errors import ConfigError

if TYPE_CHECKING:
    Env = gymnasium.Env[Any, Any]
    Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    Wrapper = gymnasium.Wrapper


class SeededEnv(Wrapper):
    """An env with DI-engine's method ``seed``."""

    _given: int | None = None  # seed of the next episode
    _repeats = False

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Sets the seed of the next episode; with ``dynamic_seed=False``, of every later one, too."""
        self._given = int(seed)
        self._repeats = not dynamic_seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, with the given seed if none is passed."""
        used = self._given if seed is None else seed
        self._given = self._given if self._repeats else None
        return self.env.reset(seed=used, options=options)


class WeightedReward(Wrapper):
    """Makes one reward of the vector of rewards of a multi-objective env, such as MO-Gymnasium's.

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
