"""Contextual bandits for every kind of action: the obs is a one-hot class, and one action is right for each."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from fakes import IdentityEnv


class RightActionEnv(IdentityEnv):
    """Earns up to 1 in each of 8 steps, for an action near the right one of the class that it shows."""

    right: Any = None
    """The right action of each class, [4, ...]."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        distance = np.abs(np.asarray(action, float) - self.right[self._class]).reshape(-1)
        self._left -= 1
        return self._next(), float(1 - distance.clip(0, 1).mean()), self._left == 0, False, {}


class BoxEnv(RightActionEnv):
    action_space = gymnasium.spaces.Box(np.array([[-2, 0]], np.float32), np.array([[1, 4]], np.float32))
    right = np.array([[[-1.8, 0.5]], [[0.8, 3.5]], [[-0.5, 1.0]], [[0.0, 2.0]]])


class MultiDiscreteEnv(RightActionEnv):
    action_space = gymnasium.spaces.MultiDiscrete([3, 2], start=[5, 0])
    right = np.array([[5, 1], [6, 0], [7, 0], [5, 0]])


class MultiBinaryEnv(RightActionEnv):
    action_space = gymnasium.spaces.MultiBinary(3)
    right = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 0]])


class Ladder(gymnasium.Env):
    """Shows its attributes; an episode has 4 steps, each of which earns the level."""

    observation_space = gymnasium.spaces.Box(-99, 99, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.level, self.speed = 1, -1.0

    def set_speed(self, speed: float) -> None:
        self.speed = speed

    def _obs(self) -> np.ndarray:
        return np.array([self.level, self.speed], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = 4
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        info = {'is_success': self.level >= 2} if not self._left else {}
        return self._obs(), float(self.level), self._left == 0, False, info
