"""Noise that continuous actions explore by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.timestep import IntArray


class ExplorationNoise:
    """Standard normal numbers for each env, which may hang together from one env step to the next.

    With correlation c, a number is c times the previous one plus sqrt(1 - c^2) times a new one: it is standard normal
    at every step for any c. An episode starts with new numbers.

    Args:
        size: Numbers for each env.
        correlation: Of one step's numbers with those of the step before, in [0, 1).
        rng: Source of the fresh numbers.

    Source:
        The Ornstein-Uhlenbeck process of Lillicrap et al., Continuous Control with Deep Reinforcement Learning (2016),
        in steps of one env step and with variance 1.
    """

    def __init__(self, size: int, correlation: float, rng: np.random.Generator) -> None:
        self._size, self._correlation, self._rng = size, correlation, rng
        self._last = np.zeros((0, size), np.float32)  # [N, size]
        self._kept = np.zeros((0, 1), np.float32)  # 0 for envs whose episode has just started, [N, 1]

    def draw(self, env_id: IntArray) -> NDArray[np.float32]:
        """Returns the numbers of the next step of these envs, float32 [n, size]."""
        fresh = self._rng.standard_normal((len(env_id), self._size), np.float32)
        if not self._correlation:
            return fresh
        missing = int(env_id.max()) + 1 - len(self._last)
        if missing > 0:
            self._last = np.concatenate([self._last, np.zeros((missing, self._size), np.float32)])
            self._kept = np.concatenate([self._kept, np.zeros((missing, 1), np.float32)])
        kept = self._kept[env_id]
        noise = kept * self._last[env_id] + np.sqrt(1 - kept * kept) * fresh
        self._last[env_id], self._kept[env_id] = noise, self._correlation
        return noise

    def reset(self, env_id: IntArray | None = None) -> None:
        """Begins anew for these envs, or for all."""
        known: Any = slice(None)
        if env_id is not None:
            env_id = np.asarray(env_id)
            known = env_id[env_id < len(self._kept)]
        self._kept[known] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that the next numbers depend on, without the generator."""
        return {'last': self._last.copy(), 'kept': self._kept.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        self._last, self._kept = state['last'].copy(), state['kept'].copy()
