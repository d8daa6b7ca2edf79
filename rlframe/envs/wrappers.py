"""Wrappers of envs: ``SeededEnv`` for DI-engine's loops, ``WeightedReward`` for several rewards, two of observations, one of infos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlframe.data.observation import fields_of, is_text
from rlframe.errors import ConfigError
from rlframe.registry import nearest

if TYPE_CHECKING:
    Env = gymnasium.Env[Any, Any]
    Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    Wrapper = gymnasium.Wrapper

STATE = 'state()'
"""The key of what an env's own method ``state`` returns."""
TEXT_LENGTH = 96
"""Bytes of a text, as of EnvPool's missions."""


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


class InfoObservation(Wrapper):
    """Adds what an env tells beside its observations to them, such as the state of a simulator for ``policy.model.critic_obs``.

    An observation with parts gets one more; another one becomes the part ``observation`` beside it.

    Args:
        env: The env. One reset finds out the shape of what it tells, unless it has a ``state_space``.
        key: An entry of the info, after ``reset`` and every step: numbers of one shape. It becomes the part of that name.
            ``'state()'``: what the method ``state`` of the env returns, or the numbers of an attribute of that name, as the part
        ``state``.

    Raises:
        ConfigError: If the env does not tell it, or its observations have such a part already.
    """

    def __init__(self, env: Env, key: str) -> None:
        super().__init__(env)
        self._key = key
        self._name = 'state' if key == STATE else key
        space = env.observation_space
        parts = dict(fields_of(space)) or {'observation': space}
        self._has_parts = bool(fields_of(space))
        if self._name in parts:
            message = f'the observations have the part {self._name!r} already'
            raise ConfigError(message, where='env.wrappers', got=key, expected=f'none of {list(parts)}')
        own = getattr(env.unwrapped, 'state_space', None) if key == STATE else None
        self._dtype = np.dtype(np.float32 if own is None else own.dtype)
        if own is None:
            told = self._told(env.reset(seed=0)[1])
            own = gymnasium.spaces.Box(-np.inf, np.inf, told.shape, np.float32)
        self.observation_space = gymnasium.spaces.Dict({**parts, self._name: own}, sort_keys=False)

    def reset(self, **given: Any) -> Any:
        obs, info = self.env.reset(**given)
        return self._with(obs, info), info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with(obs, info), reward, terminated, truncated, info

    def _with(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        return {**(obs if self._has_parts else {'observation': obs}), self._name: self._told(info)}

    def _told(self, info: dict[str, Any]) -> Any:
        """Returns what the env tells now, as an array."""
        if self._key != STATE:
            known = {name: value for name, value in info.items() if np.asarray(value).dtype.kind in 'biuf'}
            if self._key in known:
                return np.asarray(known[self._key], self._dtype)
            raise ConfigError(
                f'info has no numbers {self._key!r}.{nearest(self._key, known)}'.rstrip('.'),
                where='env.wrappers',
                got=self._key,
                expected=f'one of {list(known)}' if known else f'{STATE!r}, as info has no numbers',
                remedy=f'key={STATE!r} adds what the method or the attribute state of the env says.',
            )
        state = getattr(self.env.unwrapped, 'state', None)
        if state is None:
            message = f'{type(self.env.unwrapped).__name__} has no state'
            raise ConfigError(message, where='env.wrappers', got=self._key, expected='an entry of its info')
        return np.asarray(state() if callable(state) else state, self._dtype)


class AttributeInfo(Wrapper):
    """Adds numbers that an env keeps to its infos, such as ``agent_pos`` of MiniGrid, which ``counts`` can count.

    Args:
        env: The env.
        name: Attribute of the innermost env, and key of the info.

    Raises:
        ConfigError: If the env has no such attribute.
    """

    def __init__(self, env: Env, name: str) -> None:
        super().__init__(env)
        self._name = name
        if not hasattr(env.unwrapped, name):
            message = f'{type(env.unwrapped).__name__} has no such attribute'
            raise ConfigError(message, where='env.wrappers', got=name, expected='an attribute of the env')

    def reset(self, **given: Any) -> Any:
        obs, info = self.env.reset(**given)
        return obs, self._with(info)

    def step(self, action: Any) -> Any:
        *step, info = self.env.step(action)
        return *step, self._with(info)

    def _with(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, self._name: np.array(getattr(self.env.unwrapped, self._name))}


class TextAsBytes(Wrapper):
    """Gives the texts among the parts of observations as bytes, which the encoder ``'grid'`` reads letter by letter.

    Args:
        env: The env, whose observations are a ``Dict``.
        length: Bytes of a text: longer ones are cut, shorter ones end in zeros.
    """

    def __init__(self, env: Env, length: int = TEXT_LENGTH) -> None:
        super().__init__(env)
        parts = dict(fields_of(env.observation_space))
        self._length = length
        self._texts = [name for name, part in parts.items() if is_text(part)]
        text = gymnasium.spaces.Box(0, 255, (length,), np.uint8)
        parts |= dict.fromkeys(self._texts, text)
        self.observation_space = gymnasium.spaces.Dict(parts, sort_keys=False)

    def reset(self, **given: Any) -> Any:
        obs, info = self.env.reset(**given)
        return self._readable(obs), info

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action)
        return self._readable(obs), *rest

    def _readable(self, obs: Any) -> dict[str, Any]:
        texts = {name: obs[name].encode()[: self._length].ljust(self._length, b'\0') for name in self._texts}
        return {**obs, **{name: np.frombuffer(text, np.uint8) for name, text in texts.items()}}
