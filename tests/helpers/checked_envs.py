"""Envs with one fault each, for ``rlframe check-env``."""

from __future__ import annotations

import copy
import threading
from typing import Any

import gymnasium
import numpy as np

RELEASE = threading.Event()
"""Lets envs that hang return, so that no thread outlives its test."""


class GoodEnv(gymnasium.Env[Any, Any]):
    """A random walk, whose episodes end at random."""

    metadata: dict[str, Any] = {}  # as Gymnasium declares it
    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.at = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = float(self.draw())
        return self.obs(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.at += 2.0 * float(action) - 1.0
        return self.obs(), self.at, bool(self.draw() < 0.1), False, {}

    def draw(self) -> float:
        return float(self.np_random.random())

    def obs(self) -> Any:
        return np.array([self.at], np.float32)


class Hanging(GoodEnv):
    """Never comes back from its second reset."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        if self.resets > 1:
            RELEASE.wait()
        return super().reset(seed=seed)


class Printing(GoodEnv):
    """Prints in every reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        print('a new episode begins')
        return super().reset(seed=seed)


class Raising(GoodEnv):
    """Fails in its step."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return {}['position']  # type: ignore[no-any-return]


class NeverMade(GoodEnv):
    """Fails in its constructor."""

    def __init__(self) -> None:
        raise OSError('no simulator')


class Reusing(GoodEnv):
    """Writes every observation into the same array, which is a part of it where it has parts.

    Args:
        has_parts: Whether it has.
    """

    def __init__(self, has_parts: bool = False) -> None:
        super().__init__()
        self._buffer, self._has_parts = np.zeros(1, np.float32), has_parts
        if has_parts:
            self.observation_space = gymnasium.spaces.Dict(at=GoodEnv.observation_space)  # type: ignore[assignment]

    def obs(self) -> Any:
        self._buffer[:] = self.at
        return {'at': self._buffer} if self._has_parts else self._buffer[:]


class Unseeded(GoodEnv):
    """Draws from a generator that no seed controls."""

    own = np.random.default_rng()

    def draw(self) -> float:
        return float(self.own.random())


class Learning(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Subtracts the mean of what it has seen so far.

    Args:
        env: The env.
        of: ``'obs'`` or ``'reward'``.
    """

    def __init__(self, env: Any, of: str) -> None:
        super().__init__(env)
        self._of, self._seen = of, [0.0]

    def _less(self, value: Any) -> Any:
        self._seen.append(float(np.sum(value)))
        return value - np.float32(np.mean(self._seen))

    def reset(self, **given: Any) -> Any:
        obs, info = self.env.reset(**given)
        return self._less(obs) if self._of == 'obs' else obs, info

    def step(self, action: Any) -> Any:
        obs, reward, *others = self.env.step(action)
        if self._of == 'obs':
            return self._less(obs), reward, *others
        return obs, float(self._less(reward)), *others


class Harder(GoodEnv):
    """Begins each episode farther away than the one before."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        super().reset(seed=seed)
        self.at += self.resets
        return self.obs(), {}


class Handle(GoodEnv):
    """Holds something that cannot be saved."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.plan = (number for number in range(9))
        return super().reset(seed=seed)


class Endless(GoodEnv):
    """Ends no episode and gives no reward."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.at += float(self.draw()) / 1000
        return self.obs(), 0.0, False, False, {}


class Texts(GoodEnv):
    """Acts by texts, which no policy gives."""

    action_space = gymnasium.spaces.Text(4)  # type: ignore[assignment]


class WithText(GoodEnv):
    """Has a part that no network reads in its observations."""

    observation_space = gymnasium.spaces.Dict(
        {'at': GoodEnv.observation_space, 'name': gymnasium.spaces.Text(8)}
    )  # type: ignore[assignment]

    def obs(self) -> Any:
        return {'at': super().obs(), 'name': 'walk'}


class Masked(GoodEnv):
    """Gives masks where and as it is told to.

    Args:
        first: Mask in the infos of resets; None: none.
        later: Mask in the infos of steps; None: none.
    """

    def __init__(self, first: Any = None, later: Any = None) -> None:
        super().__init__()
        self._first, self._later = (
            {} if mask is None else {'action_mask': np.array(mask)} for mask in (first, later)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed)[0], copy.deepcopy(self._first)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return *super().step(int(np.sum(action) > 0))[:4], copy.deepcopy(self._later)


class MaskedPush(Masked):
    """Gives masks beside actions that cannot be masked."""

    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)  # type: ignore[assignment]


class MaskedPart(MaskedPush):
    """Gives such a mask as a part of its observations."""

    observation_space = gymnasium.spaces.Dict(
        {'at': GoodEnv.observation_space, 'action_mask': gymnasium.spaces.MultiBinary(2)}
    )  # type: ignore[assignment]

    def obs(self) -> Any:
        return {'at': super().obs(), 'action_mask': np.ones(2, np.int8)}
