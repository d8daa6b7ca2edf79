"""Which items a buffer hands out, as ages: 0 is the oldest item of the storage or range that is sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import IntArray
from rlframe.worker.replay_buffer.ring import Storage


class Sampler(ABC):
    """Draws items by age; the buffer checks beforehand that it is not empty."""

    @abstractmethod
    def sample(self, size: int, storage: Storage) -> IntArray:
        """Draws one batch.

        Args:
            size: Number of items, >= 1; at most ``len(storage)``, unless the user allowed repetition.
            storage: Storage to sample from; with a ``sample_range``, only the items in that range.

        Returns:
            Ages in [0, len(storage)), int [size].
        """

    def sample_with_replacement(self, size: int, storage: Storage) -> IntArray:
        """Draws one batch in which items may recur, int [size]."""
        return self.sample(size, storage)

    def sample_batches(self, count: int, size: int, storage: Storage) -> IntArray:
        """Draws several batches from one state of the storage, int [count, size]."""
        return np.stack([self.sample(size, storage) for _ in range(count)])

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that the next draws depend on, besides the buffer's own random generator."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``."""
        return


class UniformSampler(Sampler):
    """Every set of ``size`` distinct items is equally likely.

    Args:
        rng: Random generator.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def sample(self, size: int, storage: Storage) -> IntArray:
        age: IntArray = self.sample_batches(1, size, storage)[0]
        return age

    def sample_with_replacement(self, size: int, storage: Storage) -> IntArray:
        age: IntArray = self._rng.integers(0, len(storage), size)
        return age

    def sample_batches(self, count: int, size: int, storage: Storage) -> IntArray:
        population = len(storage)
        if size * size > population:
            rows = [self._rng.choice(population, size, replace=False, shuffle=False) for _ in range(count)]
            return np.stack(rows)
        # A batch repeats an item with a probability below 0.4: drawing it again is less than a permutation.
        age = self._rng.integers(0, population, (count, size))
        bad = _has_repeat(age)
        while bad.size:
            age[bad] = self._rng.integers(0, population, (bad.size, size))
            bad = bad[_has_repeat(age[bad])]
        return age


def _has_repeat(age: IntArray) -> IntArray:
    """Returns which rows contain a number twice."""
    ordered = age.copy()
    ordered.sort(axis=1)
    is_same = ordered[:, 1:] == ordered[:, :-1]
    return np.flatnonzero(is_same.any(axis=1)) if is_same.any() else np.empty(0, np.int64)
