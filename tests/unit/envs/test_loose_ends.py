"""Habits of envs that spoil runs are told once: arrays that are written again, randomness that no seed reaches."""

from __future__ import annotations

import random
import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe.envs import BaseEnvManager
from rlframe.envs.async_manager import SubprocessEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import EnvContractError, EnvContractWarning, IncompatibleError

SHARED = np.zeros(3, np.float32)


class Habitual(gymnasium.Env):
    """Its episodes have 6 steps.

    Args:
        habit: What it does: 'reuse', 'view', 'share', 'part', 'numpy', 'python', 'entropy', or nothing.
    """

    action_space = Discrete(2)

    def __init__(self, habit: str = '') -> None:
        self.observation_space: Any = Box(-100, 100, (3,), np.float32)
        if habit == 'part':
            self.observation_space = Dict(a=self.observation_space, b=Discrete(3))
        self._habit = habit
        self._buffer = SHARED if habit == 'share' else np.zeros(3, np.float32)
        self._own = np.random.default_rng()

    def _obs(self) -> Any:
        draw = {
            'numpy': np.random.rand,
            'python': random.random,
            'entropy': self._own.random,
        }.get(self._habit, self.np_random.random)
        values = (
            self._buffer if self._habit in ('reuse', 'view', 'share', 'part') else np.zeros(3, np.float32)
        )
        values[:] = draw()
        if self._habit == 'part':
            return {'a': values, 'b': 1}
        return values[:] if self._habit == 'view' else values

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = 6
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return self._obs(), 0.0, False, self._left == 0, {}


def told(manager: str, **kwargs: Any) -> list[str]:
    """Returns what is told of two envs in 30 steps."""
    factory = GymEnvFactory({'env_id': Habitual, 'kwargs': kwargs})
    kinds: dict[str, Any] = {
        'base': BaseEnvManager,
        'subprocess': SubprocessEnvManager,
        'vector': GymVectorEnvManager,
    }
    options = {'vector': {'mode': 'sync'}, 'subprocess': {'worker_num': 1}}.get(manager, {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', EnvContractWarning)
        envs = kinds[manager].from_factory(factory, 2, options)
        try:
            envs.reset(seed=[0, 1])
            for _ in range(30):
                done = envs.step(np.zeros(len(envs.ready), np.int64), envs.ready)
                ended = done.env_id[done.done]
                if len(ended):
                    envs.reset(ended)
        finally:
            envs.close()
    return [str(warning.message) for warning in caught if warning.category is EnvContractWarning]


REUSED, GLOBAL = 'changed an observation that it had returned', 'global generator of numpy.random'
UNSEEDED = 'two calls of reset() with the same seed gave different observations'


@pytest.mark.parametrize(
    ('manager', 'habit', 'words'),
    [
        ('base', 'reuse', (REUSED, 'obs.copy()')),
        ('vector', 'reuse', (REUSED,)),
        ('base', 'numpy', (GLOBAL, 'self.np_random')),
        ('subprocess', 'numpy', (GLOBAL,)),
        ('base', 'entropy', (UNSEEDED,)),
        ('vector', 'entropy', (UNSEEDED,)),
    ],
)
def test_habit_is_told_once_by_every_manager(manager: str, habit: str, words: tuple[str, ...]) -> None:
    (text,) = [text for text in told(manager, habit=habit) if habit == 'entropy' or 'same seed' not in text]
    assert text.startswith('Habitual: ') and all(word in text for word in words)


@pytest.mark.parametrize(
    ('habit', 'word'),
    [
        ('view', 'changed an observation'),
        ('part', 'changed an observation'),
        ('python', 'generator of random,'),
    ],
)
def test_other_forms_of_a_habit_are_found(habit: str, word: str) -> None:
    assert any(word in text for text in told('base', habit=habit))


@pytest.mark.parametrize('manager', ['base', 'vector'])
def test_nothing_is_told_of_an_env_without_habits(manager: str) -> None:
    assert told(manager) == []


def test_envs_that_write_into_one_array_are_refused() -> None:
    with pytest.raises(
        EnvContractError, match='Habitual: env 0 gave an observation that another env changed'
    ):
        told('base', habit='share')


def make_bounded(space: Any, where: str) -> gymnasium.Env:
    env = Habitual()
    setattr(env, where, space)
    return env


def turned(space: Box, at: tuple[int, ...]) -> Box:
    """Exchanges the ends of one dimension, which Gymnasium itself does not allow."""
    space.low[at], space.high[at] = space.high[at].copy(), space.low[at].copy()
    return space


@pytest.mark.parametrize(
    ('space', 'where', 'says'),
    [
        (turned(Box(-1, 2, (3,), np.float32), (1,)), 'observation_space', r'obs\[1\]: low 2, high -1'),
        (
            Dict(a=turned(Box(-1, 2, (2, 2), np.float32), (1, 0))),
            'observation_space',
            r"obs\['a'\]\[1, 0\]: low 2",
        ),
        (turned(Box(-1, 2, (3,), np.float32), (2,)), 'action_space', r'action dimension \[2\].*low\[2\] = 2'),
    ],
)
def test_box_without_values_is_refused_by_dimension(space: Any, where: str, says: str) -> None:
    with pytest.raises(IncompatibleError, match=says):
        BaseEnvManager([partial(make_bounded, space, where)])
