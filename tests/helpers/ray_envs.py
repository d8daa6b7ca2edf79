"""Envs for actors: slow ones, and ones that fail when a file says so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from moved_memory import move_from_now_on


class RankError(RuntimeError):
    """What an env raises that has enough."""


class TellingEnv(gymnasium.Env):
    """Observes its process and its step; what it does at a step is read from files that a test writes.

    Args:
        folder: Where the files are: ``hang`` and ``raise`` name the process that is to do so once.
        seconds: What a step takes.
        handle: Nothing that matters.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, folder: str = '', seconds: float = 0.0, handle: Any = None) -> None:
        self._folder, self._seconds, self._step = Path(folder), seconds, 0

    def _obs(self) -> Any:
        return np.array([os.getpid(), self._step], np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        self._length = int(self.np_random.integers(5, 20))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        if self._seconds:
            time.sleep(self._seconds)
        if self._is_told('hang'):
            time.sleep(1000)
        if self._is_told('raise'):
            raise RankError(f'enough in {os.getpid()}')
        return self._obs(), 1.0, self._step >= self._length, False, {}

    def _is_told(self, what: str) -> bool:
        """Whether this process is to do it; once only."""
        file = self._folder / what
        if not self._folder.name or not file.exists() or int(file.read_text()) != os.getpid():
            return False
        file.unlink()
        return True

    def get_state(self) -> Any:
        return {'step': self._step, 'length': self._length, 'rng': self.np_random.bit_generator.state}

    def set_state(self, state: Any) -> None:
        self._step, self._length = state['step'], state['length']
        self.np_random.bit_generator.state = state['rng']


class WideEnv(gymnasium.Env):
    """Its obs is a megabyte of the number of its step, which goes on from episode to episode; an episode has five steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (250_000,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.full(250_000, self._step, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return np.full(250_000, self._step, np.float32), 1.0, self._step % 5 == 0, False, {}


class MovedInActors(CartPoleEnv):
    """CartPole whose actor has its arrays elsewhere in memory than a process that holds no actor."""

    def __init__(self, **kwargs: Any) -> None:
        import ray

        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            move_from_now_on(8)
        super().__init__(**kwargs)
