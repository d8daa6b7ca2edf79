"""Laws of uniform sampling, and the extension example of the design."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from buffer_helpers import transitions
from easydict import EasyDict

from rlframe.data import IntArray
from rlframe.registry import BUFFER_REGISTRY
from rlframe.worker.replay_buffer import NaiveReplayBuffer, Sampler, Storage, UniformSampler, create_buffer
from rlframe.worker.replay_buffer.ring import ObjectStorage


def filled(count: int) -> ObjectStorage:
    storage = ObjectStorage(count)
    storage.push(list(range(count)))
    return storage


@pytest.mark.parametrize(('size', 'population'), [(7, 7), (3, 8), (256, 1000)])
def test_batches_hold_distinct_ages_within_the_storage(size: int, population: int) -> None:
    age = UniformSampler(np.random.default_rng(0)).sample_batches(50, size, filled(population))
    assert age.shape == (50, size)
    assert age.min() >= 0
    assert age.max() < population
    assert all(len(set(row)) == size for row in age.tolist())


def test_every_set_of_distinct_items_is_equally_likely() -> None:
    draws, population = 6000, 5
    age = UniformSampler(np.random.default_rng(1)).sample_batches(draws, 2, filled(population))
    found = Counter(tuple(sorted(row)) for row in age.tolist())
    sets = list(itertools.combinations(range(population), 2))
    expected = draws / len(sets)
    assert set(found) == set(sets)
    assert sum((found[s] - expected) ** 2 / expected for s in sets) < 27.9  # chi-square, 9 degrees, p = 0.001


class GeometricAgeSampler(Sampler):
    def __init__(self, mean_age: float, rng: np.random.Generator) -> None:
        self._mean_age, self._rng = mean_age, rng

    def sample(self, size: int, storage: Storage) -> IntArray:
        age = self._rng.geometric(1 / self._mean_age, size) - 1
        return len(storage) - 1 - age % len(storage)  # [size], 0 is the oldest


@BUFFER_REGISTRY.register('recent_of_test_sampler')
class RecentReplayBuffer(NaiveReplayBuffer):
    """Prefers fresh data: the age of a drawn transition is geometric with mean ``mean_age`` transitions."""

    config = dict(mean_age=5000)

    def _build_sampler(self, cfg: EasyDict) -> Sampler:
        return GeometricAgeSampler(cfg.mean_age, self._rng)


def test_extension_of_the_design_samples_by_age() -> None:
    buffer = create_buffer({'type': 'recent_of_test_sampler', 'mean_age': 10, 'replay_buffer_size': 1000})
    buffer.push(transitions(0, 2500), 0)
    age = 2499 - buffer.sample(900, 0)['action']
    assert age.min() == 0
    assert 8 < age.mean() < 11
    assert (2499 - buffer.sample(90, 0, sample_range=slice(0, 100))['action']).min() == 900
    assert [len(batch) for batch in buffer.batches(3, 16, 0)] == [16] * 3
    assert len(buffer.sample(2000, 0, replace=True)) == 2000
