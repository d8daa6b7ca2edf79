"""A toy env for every kind of observation and action: it shows one of four classes, and the action that names it earns 1."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CLASSES = 4
STEPS = 8
"""Env steps of an episode, and so the best possible return."""


def one_hot(number: int) -> np.ndarray:
    return np.eye(CLASSES, dtype=np.float32)[number]


def bits(number: int) -> np.ndarray:
    return np.array([number // 2, number % 2], np.int8)


def picture(number: int) -> np.ndarray:
    image = np.zeros((10, 10, CLASSES), np.uint8)
    image[3:7, 3:7, number] = 255
    return image


OBS: dict[str, tuple[gymnasium.Space, Any]] = {
    'Box': (spaces.Box(0, 1, (CLASSES,), np.float32), one_hot),
    'Box (image)': (spaces.Box(0, 255, (10, 10, CLASSES), np.uint8), picture),
    'Discrete': (spaces.Discrete(CLASSES, start=3), lambda number: number + 3),
    'MultiDiscrete': (spaces.MultiDiscrete([2, 3]), lambda number: bits(number).astype(np.int64)),
    'MultiBinary': (spaces.MultiBinary(2), bits),
    'Dict': (
        spaces.Dict(
            half=spaces.Discrete(2),
            other=spaces.Dict(half=spaces.MultiBinary(1), noise=spaces.Box(-1, 1, (3,), np.float64)),
        ),
        lambda number: {
            'half': number // 2,
            'other': {'half': bits(number)[1:], 'noise': np.full(3, number / 4)},
        },
    ),
    'Tuple': (
        spaces.Tuple((spaces.Box(0, 255, (10, 10, CLASSES), np.uint8), spaces.Discrete(CLASSES))),
        lambda number: (picture(number), number),
    ),
}
"""Kinds of observations: a space and what shows a class in it."""
ACTIONS: dict[str, tuple[gymnasium.Space, Any]] = {
    'Discrete': (spaces.Discrete(CLASSES, start=2), lambda action: action - 2),
    'MultiDiscrete': (spaces.MultiDiscrete([2, 2]), lambda action: 2 * action[0] + action[1]),
    'MultiBinary': (spaces.MultiBinary(2), lambda action: 2 * action[0] + action[1]),
    'Box': (spaces.Box(-1, 1, (2,), np.float32), lambda action: 2 * (action[0] > 0) + (action[1] > 0)),
}
"""Kinds of actions: a space and the class that an action names."""


class SpaceEnv(gymnasium.Env):
    """Shows a class and rewards the action that names it; an action that its mask forbids is an error.

    Args:
        obs: Kind of the observations.
        action: Kind of the actions.
        mask: Where it tells which actions are allowed: 'info', 'obs', or nowhere.
    """

    def __init__(self, obs: str = 'Box', action: str = 'Discrete', mask: str = '') -> None:
        self._kinds = obs, action
        space, self.action_space = OBS[obs][0], ACTIONS[action][0]
        self._size = {'Discrete': CLASSES, 'MultiDiscrete': 4}.get(action, 0)
        self._where, self._class, self._left = mask, 0, 0
        if mask == 'obs':
            space = spaces.Dict(action_mask=spaces.MultiBinary(self._size), observation=space)
        self.observation_space = space

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        self._class = int(self.np_random.integers(CLASSES))
        obs = OBS[self._kinds[0]][1](self._class)
        self._allowed = np.ones(max(self._size, 1), np.int8)
        if self._where:
            self._allowed = self.np_random.integers(0, 2, self._size).astype(np.int8)
            right = [self._class] if isinstance(self.action_space, spaces.Discrete) else self._flat()
            self._allowed[right] = 1
            if self._left == 0:
                self._allowed[:] = 0  # as board games do when they are over
        if self._where == 'obs':
            return {'observation': obs, 'action_mask': self._allowed}, {}
        return obs, {'action_mask': self._allowed, 'other': 1} if self._where else {}

    def _flat(self) -> list[int]:
        return [self._class // 2, 2 + self._class % 2]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = STEPS
        return self._answer()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            action = np.asarray(action, self.action_space.dtype)
        if self._where:
            chosen = (
                [action - 2] if isinstance(self.action_space, spaces.Discrete) else [action[0], 2 + action[1]]
            )
            if not self._allowed[chosen].all():
                raise ValueError(f'{action} is not allowed by {self._allowed}')
        reward = float(ACTIONS[self._kinds[1]][1](action) == self._class)
        self._left -= 1
        obs, info = self._answer()
        return obs, reward, self._left == 0, False, info
