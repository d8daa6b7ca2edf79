"""Laws of the plain buffer."""

from __future__ import annotations

import pytest
from buffer_helpers import assert_rows_intact, transitions
from error_texts import raises

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


@pytest.mark.parametrize(
    ('first', 'second'),
    [
        (transitions(0, 2), {'name': 'text'}),
        (['episode'], transitions(0, 2)),
    ],
)
def test_kind_is_decided_by_the_first_push_and_another_is_refused_by_name(first, second) -> None:
    buffer = NaiveReplayBuffer(None)
    buffer.push(first, 0)
    before = buffer.count()
    with pytest.raises(
        TypeError, match=r'buffer holds (columns|objects).*as its first push decided; got (str|dict|Batch)'
    ):
        buffer.push(second, 0)
    assert buffer.count() == before


def test_objects_come_back_as_a_list_and_dicts_as_copies() -> None:
    buffer = NaiveReplayBuffer(None)
    assert buffer.push([{'name': 'a'}], 0) == 1
    assert buffer.push({'name': 'b', 'extra': [1]}, 0) == 1
    buffer.sample(2, 0)[0]['name'] = 'changed'
    assert sorted(item['name'] for item in buffer.sample(2, 0)) == ['a', 'b']
    deep = NaiveReplayBuffer(dict(deepcopy=True))
    item = ['inner']
    deep.push([[item]], 0)
    deep.sample(1, 0)[0][0].append('changed')
    item.append('changed')
    assert deep.sample(1, 0) == [[['inner']]]


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
    with raises(CheckpointNotFoundError):
        buffer.load_data(tmp_path / 'nowhere')
    save_checkpoint(tmp_path / 'policy', {'policy': {}})
    with raises(CheckpointError):
        buffer.load_data(tmp_path / 'policy')
    save_checkpoint(tmp_path / 'other', {}, buffer={'kind': 'RingStorage'})
    with raises(CheckpointCorruptError):
        buffer.load_data(tmp_path / 'other')
