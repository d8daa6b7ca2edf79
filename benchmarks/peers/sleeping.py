"""An env that does nothing but take its time, so that what is measured is the way to it and back."""

import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np


class Sleeping(gymnasium.Env):
    """Its step takes so many milliseconds; its episodes have 100 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, milliseconds: float) -> None:
        self._seconds, self._steps = milliseconds / 1000, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self._seconds)
        self._steps += 1
        return np.zeros(4, np.float32), 1.0, False, self._steps == 100, {}


def sleeping_envs(env_num: int, milliseconds: int, slow_milliseconds: int) -> list[Any]:
    """Returns what makes the envs, of which the last one takes ``slow_milliseconds``; CartPoles where both are 0."""
    if not milliseconds and not slow_milliseconds:
        return [partial(gymnasium.make, 'CartPole-v1')] * env_num
    quick = [partial(Sleeping, milliseconds)] * (env_num - 1)
    return [*quick, partial(Sleeping, slow_milliseconds)]
