"""Laws of uniform sampling, and what a sampler of one's own is asked for."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from buffer_helpers import transitions

from rlframe.data import IntArray
from rlframe.worker.replay_buffer import NaiveReplayBuffer, Sampler, Storage, UniformSampler
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


class NewestFirst(Sampler):
    def sample(self, size: int, storage: Storage) -> IntArray:
        return len(storage) - 1 - np.arange(size) % len(storage)


class NewestBuffer(NaiveReplayBuffer):
    def _build_sampler(self, cfg: Any) -> Sampler:
        return NewestFirst()


def test_a_sampler_of_one_s_own_is_asked_for_ages_among_the_items_in_question() -> None:
    buffer = NewestBuffer(dict(replay_buffer_size=10))
    buffer.push(transitions(0, 25), 0)
    assert buffer.sample(3, 0)['action'].tolist() == [24, 23, 22]
    assert buffer.sample(2, 0, sample_range=slice(0, 4))['action'].tolist() == [18, 17]
    assert [batch['action'].tolist() for batch in buffer.batches(2, 2, 0)] == [[24, 23]] * 2
    assert len(buffer.sample(30, 0, replace=True)) == 30
