"""Laws of the plain buffer, and of the one whose sampled part changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from buffer_helpers import assert_rows_intact, transitions
from error_texts import raises

from rlframe.errors import (
    BufferUnderflowError,
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigError,
)
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.worker.replay_buffer import NaiveReplayBuffer
from rlframe.worker.replay_buffer.advanced_buffer import ElasticReplayBuffer


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


def half(envstep: int) -> int:
    """Half of the env steps, at least one."""
    return max(envstep // 2, 1)


def pushed(size: int = 20, function: Any = half, count: int = 10, **kwargs: Any) -> ElasticReplayBuffer:
    buffer = ElasticReplayBuffer(dict(replay_buffer_size=size, set_buffer_size=function), **kwargs)
    for i in range(count):
        buffer.push(transitions(i, 1), i + 1)
    return buffer


def seen(buffer: ElasticReplayBuffer, **options: Any) -> list[int]:
    return sorted(set(buffer.sample(200, 0, replace=True, **options)['action'].tolist()))


def test_the_newest_k_are_sampled_and_k_follows_the_env_step() -> None:
    rng = np.random.default_rng(0)
    for case in range(15):
        size, sizes = int(rng.integers(1, 15)), [int(n) for n in rng.integers(1, 20, size=31)]
        buffer = ElasticReplayBuffer(
            dict(replay_buffer_size=size, set_buffer_size=lambda step, sizes=sizes: sizes[step]), seed=case
        )
        for step in range(1, 31):
            buffer.push(transitions(step, 1), step)
            count = min(sizes[step], step, size)
            assert buffer.count() == count
            assert seen(buffer) == list(range(step - count + 1, step + 1))


def test_update_asks_for_another_env_step_and_ranges_are_within_the_newest(caplog: Any) -> None:
    buffer = pushed()
    assert seen(buffer) == [5, 6, 7, 8, 9]
    assert seen(buffer, sample_range=slice(0, 2)) == [5, 6]
    assert buffer.sample(6, 0) is None and 'has 5 items' in caplog.text
    buffer.update(14)
    assert seen(buffer) == [3, 4, 5, 6, 7, 8, 9] and buffer.count() == 7
    buffer.update({'priority': [1.0]})
    assert buffer.count() == 7 and 'no priorities' in caplog.text
    assert [len(set(b['action'])) for b in buffer.batches(3, 7, 0)] == [7] * 3


def test_without_a_function_it_is_the_plain_buffer_and_a_name_stands_for_one() -> None:
    assert pushed(function=None).count() == 10
    assert pushed(function='test_naive:half').count() == 5
    for bad in ('math:no_such', 'no_module:f'):
        with raises(ConfigError):
            pushed(function=bad)
    for bad in (3, 'isqrt'):
        with raises(ConfigError):
            pushed(function=bad)
    for wrong in (0, 2.5, None):
        with raises(ConfigError):
            pushed(function=lambda step, wrong=wrong: wrong)


def test_state_keeps_the_size() -> None:
    buffer, other = pushed(), pushed(count=0, seed=4)
    buffer.update(6)
    other.load_state_dict(buffer.state_dict())
    assert other.count() == 3 and seen(other) == [7, 8, 9]
