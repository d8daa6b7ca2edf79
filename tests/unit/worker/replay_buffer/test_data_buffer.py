"""A buffer beside data: the share of a batch that is from them, priorities on their way back, and its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError
from rlframe.worker import create_buffer
from rlframe.worker.replay_buffer.data_buffer import BufferWithData


def rows(first: int, count: int, **more: Any) -> Batch:
    return Batch(obs=np.arange(first, first + count), **more)


def filled(kind: str = 'naive', share: float = 0.25, own: int = 40, seed: int = 0) -> BufferWithData:
    """Returns a buffer whose data are numbered from 1000 on, and whose other rows from 0 on."""
    parts = [create_buffer(kind, replay_buffer_size=100, seed=seed + i) for i in range(2)]
    buffer = BufferWithData(parts[0], parts[1], share)
    buffer.push_data(rows(1000, 20))
    if own:
        buffer.push(rows(0, own), 0)
    return buffer


@pytest.mark.parametrize(('share', 'expected'), [(0.25, 4), (0.5, 8), (0.01, 1)])
def test_a_fixed_share_of_each_batch_is_from_the_data(share: float, expected: int) -> None:
    for batch in filled(share=share).batches(3, 16, 0):
        assert isinstance(batch, Batch)
        assert batch['is_demo'].sum() == expected
        np.testing.assert_array_equal(batch['obs'] >= 1000, batch['is_demo'])


def test_whole_batches_are_from_the_data_until_the_run_has_collected_its_part() -> None:
    buffer = filled(own=11)
    assert next(iter(buffer.batches(1, 16, 0)))['is_demo'].all()
    buffer.push(rows(11, 1), 0)
    assert next(iter(buffer.batches(1, 16, 0)))['is_demo'].sum() == 4


def test_too_few_data_are_an_error_and_no_smaller_batch() -> None:
    with pytest.raises(BufferUnderflowError):
        filled(share=0.5).batches(1, 60, 0)


def test_pushed_rows_that_are_marked_join_the_data() -> None:
    buffer = filled()
    buffer.push(rows(500, 4, is_demo=np.array([True, False, False, True])), 0)
    assert (buffer.data.count(), buffer.own.count()) == (22, 42)


def test_priorities_reach_the_rows_that_they_are_of() -> None:
    buffer = filled('advanced', share=0.5)
    batch = next(iter(buffer.batches(1, 16, 0)))
    chosen = {int(number): 5.0 + i for i, number in enumerate(batch['obs'])}
    buffer.update(
        {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
        | {'priority': np.array([chosen[int(number)] for number in batch['obs']])}
    )
    for _ in range(20):
        again = next(iter(buffer.batches(1, 16, 0)))
        for number, priority in zip(again['obs'], again['priority'], strict=True):
            assert priority == pytest.approx(chosen.get(int(number), 1.0), abs=1e-4)


@pytest.mark.parametrize('kind', ['naive', 'advanced'])
def test_a_restored_buffer_draws_the_same_batches(kind: str) -> None:
    buffer, other = filled(kind), filled(kind, own=0, seed=5)
    other.load_state_dict(buffer.state_dict())
    for one, two in zip(buffer.batches(4, 16, 0), other.batches(4, 16, 0), strict=True):
        np.testing.assert_array_equal(one['obs'], two['obs'])
