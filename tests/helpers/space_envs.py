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
    'Dict': (
        spaces.Dict(
            half=spaces.Discrete(2, start=1),
            rest=spaces.Tuple((spaces.Box(-1, 1, (1,), np.float32), spaces.MultiBinary(2))),
        ),
        lambda action: 2 * (action['half'] - 1) + (action['rest'][0][0] > 0),
    ),
    'Tuple': (
        spaces.Tuple((spaces.Box(0, 3, (2, 1), np.float64), spaces.MultiDiscrete([2, 2], start=[0, 7]))),
        lambda action: 2 * action[1][0] + action[1][1] - 7,
    ),
    'Hybrid': (
        spaces.Tuple((spaces.Box(-1, 3, (2, 2), np.float64), spaces.Discrete(CLASSES, start=1))),
        lambda action: action[1] - 1 if action[0].flat[action[1] - 1] > 1 else CLASSES,
    ),
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
        self._kinds, self.bonus = (obs, action), 0.0  # which a curriculum may raise
        space, self.action_space = OBS[obs][0], ACTIONS[action][0]
        self._size = {'Discrete': CLASSES, 'MultiDiscrete': 4, 'Dict': 2, 'Tuple': 4, 'Hybrid': CLASSES}.get(
            action, 0
        )
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
            self._allowed[self._right()] = 1
            if self._left == 0:
                self._allowed[:] = 0  # as board games do when they are over
        if self._where == 'obs':
            return {'observation': obs, 'action_mask': self._allowed}, {}
        return obs, {'action_mask': self._allowed, 'other': 1} if self._where else {}

    def _right(self) -> list[int]:
        """Returns the places of the right classes in a mask."""
        first, second = self._class // 2, 2 + self._class % 2
        single = {'Discrete': [self._class], 'Hybrid': [self._class], 'Dict': [first]}
        return single.get(self._kinds[1], [first, second])

    def _chosen(self, action: Any) -> list[int]:
        """Returns the places of the classes of an action in a mask."""
        kind = self._kinds[1]
        if kind == 'Hybrid':
            return [action[1] - 1]
        if kind in ('Discrete', 'Dict'):
            return [action - 2 if kind == 'Discrete' else action['half'] - 1]
        return [action[0], 2 + action[1]] if kind == 'MultiDiscrete' else [action[1][0], 2 + action[1][1] - 7]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = STEPS
        return self._answer()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            action = np.asarray(action, self.action_space.dtype)
        if self._where and not self._allowed[self._chosen(action)].all():
            raise ValueError(f'{action} is not allowed by {self._allowed}')
        reward = float(ACTIONS[self._kinds[1]][1](action) == self._class) + self.bonus
        self._left -= 1
        obs, info = self._answer()
        return obs, reward, self._left == 0, False, info
