"""Laws of the plain buffer."""

from __future__ import annotations

import pytest
from buffer_helpers import assert_rows_intact, transitions

from rlframe.errors import (
    BufferUnderflowError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
)
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.worker.replay_buffer import NaiveReplayBuffer


def filled(count: int, size: int = 100, **kwargs) -> NaiveReplayBuffer:
    buffer = NaiveReplayBuffer(dict(replay_buffer_size=size), **kwargs)
    buffer.push(transitions(0, count), 0)
    return buffer


@pytest.mark.parametrize('data', ['text', ['episode'], {'name': 'text'}, [{}]])
def test_what_is_neither_columns_nor_numbers_is_refused(data) -> None:
    with pytest.raises(TypeError, match='takes a Batch, or mappings of arrays and numbers'):
        NaiveReplayBuffer(None).push(data, 0)


def test_batches_are_distinct_rows_fixed_at_the_call() -> None:
    buffer, twin = filled(100), filled(100)
    batches = buffer.batches(6, 16, 0)
    buffer.push(transitions(1000, 100), 0)
    expected = [batch['action'].tolist() for batch in twin.batches(6, 16, 0)]
    got = list(batches)
    for batch, action in zip(got, expected, strict=True):
        assert_rows_intact(batch)
        assert batch['action'].tolist() == action
        assert len(set(action)) == 16
        assert batch['obs'].flags.c_contiguous
    with pytest.raises(BufferUnderflowError):
        buffer.batches(2, 101, 0)


def test_batches_of_a_subclass_use_its_own_sample() -> None:
    class Newest(NaiveReplayBuffer):
        def sample(self, size, cur_learner_iter, sample_range=None, replace=False):
            return super().sample(size, cur_learner_iter, slice(-size, None), replace)

    buffer = Newest(None)
    buffer.push(transitions(0, 50), 0)
    assert all(sorted(batch['action']) == [48, 49] for batch in buffer.batches(4, 2, 0))


def test_missing_and_other_checkpoints_are_refused_by_name(tmp_path) -> None:
    buffer = filled(10)
    with pytest.raises(CheckpointNotFoundError, match='nowhere'):
        buffer.load_data(tmp_path / 'nowhere')
    save_checkpoint(tmp_path / 'policy', {'policy': {}})
    with pytest.raises(CheckpointError, match=r'policy: .*replay_buffer'):
        buffer.load_data(tmp_path / 'policy')
    save_checkpoint(tmp_path / 'other', {}, buffer={'kind': 'RingStorage'})
    with pytest.raises(CheckpointCorruptError, match=r'replay_buffer\.\w+: .*missing'):
        buffer.load_data(tmp_path / 'other')
