"""An env that breaks Gymnasium's contract where it is told to, for this process and for others."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

EPISODE = 5
"""Steps of an episode."""

NAN, INF = float('nan'), float('inf')
RIGHT = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
OBS: dict[str, Any] = {
    'obs of 5': np.zeros(5, np.float32),
    'obs with an axis too many': np.zeros((1, 4), np.float32),
    'obs is a number': 0.5,
    'obs of one': np.zeros(1, np.float32),
    'obs of objects': np.array([None] * 4),
    'obs of texts': np.array(['1', '2', '3', '4']),
    'obs is none': None,
    'obs is ragged': [1.0, [2.0]],
    'obs complex': RIGHT.astype(np.complex64),
    'obs nan': np.array([0, NAN, 0, 0], np.float32),
    'obs inf': np.array([0, 0, 0, -INF], np.float32),
}
REWARD: dict[str, Any] = {
    'reward nan': NAN,
    'reward inf': INF,
    'reward too large': 1e300,
    'reward array': np.ones(1),
    'reward none': None,
    'reward text': '1.5',
    'reward list': [1.0],
}
FLAG: dict[str, Any] = {'flag int': 1, 'flag none': None, 'flag array': np.array([True])}
HARMLESS: dict[str, Any] = {
    'float64': RIGHT.astype(np.float64),
    'out of bounds': RIGHT * 100,
    'below the bounds': RIGHT * -100,
}


class BrokenEnv(gymnasium.Env):
    """Its episodes have 5 steps; from one step, or one episode, on it answers wrongly.

    Args:
        fault: What is wrong, a key of the dicts above; 'reset: ' before one of ``OBS`` lets ``reset`` be wrong.
        at: Step of all, counted from 1, or for ``reset`` the episode, from which on it is.
        length: Steps of an episode.
        low, high, dtype: The space that it declares.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        fault: str = '',
        at: int = 1,
        length: int = EPISODE,
        low: float = -1.0,
        high: float = 1.0,
        dtype: str = 'float32',
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(low, high, (4,), np.dtype(dtype))  # type: ignore[type-var]
        self._fault, self._at, self._length = fault, at, length
        self._right = RIGHT.astype(dtype)
        self._frames = self._episodes = self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._episodes = 0, self._episodes + 1
        name = self._fault.removeprefix('reset: ')
        wrong = name != self._fault and self._episodes >= self._at
        return (({**OBS, **HARMLESS}[name] if wrong else self._right), {})

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._frames += 1
        self._step += 1
        fault = self._fault if self._frames >= self._at else ''
        truncated: Any = np.bool_(self._step >= self._length)
        if fault == 'flag array':
            truncated = np.array([truncated])
        return (
            {**OBS, **HARMLESS}.get(fault, self._right),
            REWARD.get(fault, 1.0),
            FLAG.get(fault, False),
            truncated,
            ['x'] if fault == 'facts are a list' else {},  # type: ignore[return-value]
        )
