"""Envs that tell trials apart, and ones that fail when they are told to."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class SimulatorError(Exception):
    """An env's own kind of error, which takes two arguments."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f'{place}: {reason}')
        self.place, self.reason = place, reason


class ScoredEnv(gymnasium.Env):
    """Its return is what it is told; from a step on it does what else it is told.

    Args:
        score: Return of an episode.
        fault: ``raise``, ``hang`` or ``nan``; empty: nothing happens.
        at: At which step of all.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length = 5

    def __init__(self, score: float = 1.0, fault: str = '', at: int = 40) -> None:
        self._reward, self._fault, self._at, self._all, self._step = score / self.length, fault, at, 0, 0

    def _obs(self) -> Any:
        return np.array([self._step, self._reward], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step, self._all = self._step + 1, self._all + 1
        is_due = self._all >= self._at
        if is_due and self._fault == 'raise':
            raise SimulatorError('joint 3', 'lost its mind')
        if is_due and self._fault == 'hang':
            time.sleep(1000)
        reward = float('nan') if is_due and self._fault == 'nan' else self._reward
        return self._obs(), reward, self._step >= self.length, False, {}


class SlowEnv(ScoredEnv):
    """The same with steps that take time, so that a search can be interrupted."""

    def step(self, action: Any) -> Any:
        time.sleep(0.003)
        return super().step(action)


class FailsOnce(ScoredEnv):
    """Raises at a step, and makes a file, so that no other env does it again.

    Args:
        file: Its path.
    """

    def __init__(self, file: str, **arguments: Any) -> None:
        super().__init__(fault='' if Path(file).exists() else 'raise', **arguments)
        self._file = Path(file)

    def step(self, action: Any) -> Any:
        if self._all + 1 >= self._at:
            self._file.touch()
        return super().step(action)


class FirstFails(ScoredEnv):
    """Raises in the first process that steps it.

    Args:
        folder: Where it is noted who was the first.
    """

    def __init__(self, folder: str, **arguments: Any) -> None:
        super().__init__(fault='', **arguments)
        self._first = Path(folder) / 'first'

    def step(self, action: Any) -> Any:
        with contextlib.suppress(FileExistsError):
            self._first.symlink_to(str(os.getpid()))
        self._fault = 'raise' if os.readlink(self._first) == str(os.getpid()) else ''
        return super().step(action)
