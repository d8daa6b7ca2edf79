"""Laws of the ring: what is kept, where it lies, that nothing is shared."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from buffer_helpers import assert_rows_intact, transitions
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data import Batch
from rlframe.errors import CheckpointCorruptError, CheckpointMismatchError, ResourceError
from rlframe.run import machine
from rlframe.worker.replay_buffer.device import check_memory
from rlframe.worker.replay_buffer.ring import (
    ObjectStorage,
    RingStorage,
    is_numeric,
    stack_items,
    to_numpy,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(capacity=st.integers(1, 12), pushes=st.lists(st.integers(0, 30), max_size=8))
def test_ring_keeps_the_newest_rows_in_age_order(capacity: int, pushes: list[int]) -> None:
    ring, objects, total = RingStorage(capacity), ObjectStorage(capacity), 0
    for count in pushes:
        if count:
            ring.push(transitions(total, count))
            objects.push(list(range(total, total + count)))
        total += count
    expected = list(range(max(total - capacity, 0), total))
    assert len(ring) == len(objects) == len(expected)
    assert objects.gather(objects.window()) == expected
    if expected:
        rows = ring.gather(ring.window())
        assert rows['action'].tolist() == expected
        assert_rows_intact(rows)


def test_nested_batches_are_columns_too() -> None:
    ring = RingStorage(3)
    image = np.arange(10, dtype=np.uint8).reshape(5, 2)
    ring.push(Batch(obs=Batch(image=image, speed=np.arange(5.0)), action=np.arange(5)))
    rows = ring.gather(ring.window())
    np.testing.assert_array_equal(rows['obs']['image'], image[2:])
    assert rows['obs']['speed'].tolist() == [2, 3, 4]
    copy = RingStorage(3)
    copy.load_state_dict(ring.state_dict())
    np.testing.assert_array_equal(copy.gather(copy.window())['obs']['image'], image[2:])


@pytest.mark.parametrize('device', [None, torch.device('cpu')])
@pytest.mark.parametrize(
    'change',
    [
        lambda b: b.replace(actions=b['obs']),
        lambda b: b.replace(obs=b['obs'].astype(np.float64)),
        lambda b: b.replace(obs=b['obs'][:, :2]),
        lambda b: b.replace(obs=Batch(x=b['obs'])),
        lambda b: Batch(obs=b['obs']),
    ],
)
def test_block_of_other_columns_is_refused_by_name_and_nothing_is_written(change, device) -> None:
    ring = RingStorage(8, device)
    ring.push(transitions(0, 3))
    with raises(ValueError):
        ring.push(change(transitions(3, 3)))
    assert ring.gather(ring.window())['action'].tolist() == [0, 1, 2]


def test_columns_that_do_not_fit_into_memory_are_refused_before_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, 'available_memory', lambda: 2**30)
    monkeypatch.setattr(np, 'empty', lambda *a, **k: pytest.fail('allocated'))
    with raises(ResourceError):
        RingStorage(10**10).push(transitions(0, 1))
    check_memory(2**30, 'x')


def test_state_of_another_capacity_or_length_is_refused() -> None:
    ring = RingStorage(4)
    ring.push(transitions(0, 6))
    with raises(CheckpointMismatchError):
        RingStorage(5).load_state_dict(ring.state_dict())
    with raises(CheckpointCorruptError):
        RingStorage(4).load_state_dict({**ring.state_dict(), 'stop': 9})


def test_smallest_number_of_a_row_is_taken_over_all_its_axes() -> None:
    ring, objects = RingStorage(4), ObjectStorage(4)
    ring.push(Batch(collect_iter=np.array([[3, 1], [5, 4]]), nested=Batch(x=np.arange(2))))
    objects.push([{'collect_iter': [3, 1]}, {'collect_iter': 4}, {}])
    assert ring.row_min('collect_iter', np.arange(2)).tolist() == [1, 4]
    assert ring.row_min('nested', np.arange(2)) is None
    assert objects.row_min('collect_iter', np.arange(3)).tolist()[:2] == [1, 4]
    assert np.isnan(objects.row_min('collect_iter', np.arange(3))[2])


def test_numbers_arrays_and_tensors_make_columns_and_nothing_else_does() -> None:
    assert is_numeric({'a': 1, 'b': np.zeros(2), 'c': torch.zeros(1), 'd': {'e': True}, 'f': np.float32(1)})
    assert not is_numeric({'a': 'text'})
    assert not is_numeric({})
    assert not is_numeric({'a': np.array(['text'])})


def test_tensors_become_arrays_and_ragged_rows_are_named() -> None:
    rows = to_numpy(Batch(obs=torch.ones(2, 3, requires_grad=True), inner=Batch(x=torch.zeros(2))))
    assert type(rows['obs']) is np.ndarray
    assert type(rows['inner']['x']) is np.ndarray
    with raises(ValueError):
        stack_items([{'obs': np.zeros(2)}, {'obs': np.zeros(3)}])
    with raises(ValueError):
        stack_items([{'obs': 1}, {'action': 1}])
