"""Envs whose numbers are given: far from zero, close to it, or too fine for float32; each writes into its own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from rlframe.envs.tensor import TensorVectorEnv

LENGTH = 5
"""Steps of an episode; every second one is truncated."""
SIZE = 2
"""Numbers of an observation."""


def space_of(dtype: str) -> gymnasium.spaces.Box:
    """Returns a Box of all numbers of a type."""
    kind = np.dtype(dtype)
    low, high = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in 'iu' else (-np.inf, np.inf)
    return gymnasium.spaces.Box(low, high, (SIZE,), kind)


def obs_at(dtype: str, offset: float, scale: float, env: Any, episode: Any, step: Any) -> Any:
    """Returns the obs of a place, [..., SIZE]: no two places have the same one, as far as the type can tell them apart."""
    place = np.asarray(100 * np.asarray(env) + 10 * np.asarray(episode) + np.asarray(step), np.float64)
    values = offset + scale * (place[..., None] + np.arange(SIZE) / 4)
    kind = np.dtype(dtype)
    if kind.kind in 'iu':  # up to a bound, and the bound itself
        return np.where(values < float(np.iinfo(kind).max), values, 0).astype(kind)
    return values.astype(kind)


class Numbers(gymnasium.Env):
    """One env; its seed tells which one it is.

    Args:
        dtype: Type of the obs.
        offset: Around which they lie.
        scale: By which they vary.
        rewards: Of the steps of an episode; they begin anew after the last one.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, dtype: str, offset: float, scale: float, rewards: Sequence[float]) -> None:
        self.observation_space = space_of(dtype)
        self._kind, self._rewards = (dtype, offset, scale), list(rewards)
        self._obs = np.zeros(SIZE, dtype)
        self._info: dict[str, Any] = {'place': np.zeros(2, np.int64)}
        self.number, self.episode, self.steps = 0, -1, 0

    def _written(self) -> tuple[Any, dict[str, Any]]:
        self._obs[:] = obs_at(*self._kind, self.number, self.episode, self.steps)
        self._info['place'][:] = self.episode, self.steps
        return self._obs, self._info

    def reset(self, *, seed: int | None = None) -> Any:  # without options
        self.number = self.number if seed is None else seed
        self.episode, self.steps = self.episode + 1, 0
        return self._written()

    def step(self, action: Any) -> Any:
        reward = self._rewards[self.steps % len(self._rewards)]
        self.steps += 1
        obs, info = self._written()
        is_over, is_odd = self.steps == LENGTH, self.episode % 2 == 1
        return obs, reward, is_over and not is_odd, is_over and is_odd, info


class NativeNumbers(gymnasium.vector.VectorEnv):
    """The same envs as a vector env that returns the same arrays at every call.

    Args:
        num_envs: Number of envs.
        autoreset: How it begins the next episode.
    """

    def __init__(self, num_envs: int, autoreset: str = 'NEXT_STEP', **kwargs: Any) -> None:
        self._envs = [Numbers(**kwargs) for _ in range(num_envs)]
        self.num_envs, self._mode = num_envs, AutoresetMode[autoreset]
        self.metadata = {'autoreset_mode': self._mode}
        self.single_observation_space = self._envs[0].observation_space
        self.single_action_space = self._envs[0].action_space
        self._obs = np.zeros((num_envs, SIZE), self.single_observation_space.dtype)
        self._reward, self._flags = np.zeros(num_envs), np.zeros((2, num_envs), bool)
        self._place = np.zeros((num_envs, 2), np.int64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        for i in np.flatnonzero((options or {}).get('reset_mask', np.ones(self.num_envs, bool))):
            self._take(i, self._envs[i].reset(seed=None if seed is None else seed + int(i)))
        self._flags[:] = False
        return self._obs, {'place': self._place}

    def _take(self, i: int, answer: Any) -> None:
        obs, *columns, info = answer
        self._obs[i], self._place[i] = obs, info['place']
        self._reward[i], self._flags[0, i], self._flags[1, i] = columns or (0.0, False, False)

    def step(self, actions: Any) -> Any:
        was_over, info = self._flags.any(0), {'place': self._place}
        for i, env in enumerate(self._envs):
            begins = self._mode is AutoresetMode.NEXT_STEP and was_over[i]
            self._take(i, env.reset() if begins else env.step(actions[i]))
        if self._mode is AutoresetMode.SAME_STEP and (over := self._flags.any(0)).any():
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(over):
                final[i] = self._obs[i].copy()
            info |= {'final_obs': final, '_final_obs': over, 'final_info': {'place': self._place.copy()}}
            for i in np.flatnonzero(over):
                self._obs[i], begun = self._envs[i].reset()
                self._place[i] = begun['place']
        return self._obs, self._reward, *self._flags, info


class TensorNumbers(TensorVectorEnv):
    """The same envs as tensors, with rewards of float32.

    Args:
        num_envs: Number of envs.
    """

    def __init__(self, num_envs: int, **kwargs: Any) -> None:
        self._env = NativeNumbers(num_envs, 'SAME_STEP', **kwargs)
        self.num_envs, self.device = num_envs, torch.device('cpu')
        self.single_observation_space = self._env.single_observation_space
        self.single_action_space = self._env.single_action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return torch.from_numpy(self._env.reset(seed=seed)[0]), {}

    def step(self, actions: torch.Tensor) -> Any:
        obs, reward, *flags, info = self._env.step(actions.numpy())
        final = obs.copy()
        for i in np.flatnonzero(info.get('_final_obs', [])):
            final[i] = info['final_obs'][i]
        columns = [torch.from_numpy(column) for column in (obs, reward.astype(np.float32), *flags)]
        return *columns, {'final_obs': torch.from_numpy(final)}
