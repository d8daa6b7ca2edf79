"""What every registered replay buffer has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module,other_module pytest tests/contract/test_buffer.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from error_texts import raises

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError, ConfigError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.worker.replay_buffer import (
    EpisodeReplayBuffer,
    IBuffer,
    SequenceReplayBuffer,
    create_buffer,
    get_buffer_cls,
)

Make = Callable[..., IBuffer]


@pytest.fixture(params=names_of(BUFFER_REGISTRY))
def make(request: pytest.FixtureRequest) -> Make:
    """Builds the buffer under test."""
    return lambda size=32, **kwargs: create_buffer(
        {'type': request.param, 'replay_buffer_size': size}, **kwargs
    )


def rows(start: int, count: int) -> Batch:
    """Returns transitions that tell their number in every column, each a whole episode."""
    number = np.arange(start, start + count)
    obs = np.stack([number, number * 2], axis=1).astype(np.float32)
    return Batch(
        obs=obs,
        action=number,
        reward=-number.astype(np.float32),
        next_obs=obs + 1,
        terminated=np.ones(count, bool),
    )


def push(buffer: IBuffer, batch: Batch, envstep: int) -> int:
    """Pushes transitions; to a buffer of episodes each as an episode of its own."""
    if isinstance(buffer, EpisodeReplayBuffer):
        return buffer.push([batch[i : i + 1] for i in range(len(batch))], envstep)
    return buffer.push(batch, envstep)


def as_items(buffer: IBuffer, batch: Batch) -> list[Any]:
    """Returns transitions as dicts; for a buffer of episodes each in a list of its own."""
    dicts = [dict(row) for row in batch]
    return [[row] for row in dicts] if isinstance(buffer, EpisodeReplayBuffer) else dicts


def draw(buffer: IBuffer, size: int, train_iter: int = 0) -> Any:
    """Returns one batch, by the call that all buffers share."""
    return next(iter(buffer.batches(1, size, train_iter)))


def flat(batch: Any) -> Batch:
    """Returns the transitions of a batch of transitions, of sequences without their padding, or of episodes."""
    if isinstance(batch, list):
        return Batch.cat(batch)
    if 'mask' not in batch:
        return batch
    mask = batch['mask']
    return Batch({name: column[mask] for name, column in batch.items() if column.shape[:2] == mask.shape})


def numbers(batch: Any) -> list[int]:
    """Returns which transitions a batch holds, having checked that none is mixed up."""
    batch = flat(batch)
    number = batch['action']
    np.testing.assert_array_equal(batch['obs'], np.stack([number, number * 2], axis=1))
    np.testing.assert_array_equal(batch['reward'], -number)
    np.testing.assert_array_equal(batch['next_obs'], batch['obs'] + 1)
    return [int(n) for n in number]


def test_samples_are_pushed_rows_whole(make: Make) -> None:
    buffer = make()
    assert push(buffer, rows(0, 20), 5) == 20
    assert buffer.count() == 20
    batch = draw(buffer, 12)
    assert len(batch) == 12
    assert set(numbers(batch)) <= set(range(20))


def test_ring_keeps_the_newest_items(make: Make) -> None:
    buffer = make(size=8)
    for start in range(0, 21, 3):
        push(buffer, rows(start, 3), start)
    assert buffer.count() == 8
    seen = {n for _ in range(60) for n in numbers(draw(buffer, 4))}
    assert seen == set(range(13, 21))


def test_push_larger_than_the_buffer_keeps_its_end(make: Make) -> None:
    buffer = make(size=8)
    push(buffer, rows(0, 50), 0)
    assert set(numbers(draw(buffer, 8))) <= set(range(42, 50))


def test_rows_may_come_one_by_one_or_as_a_list(make: Make) -> None:
    buffer = make()
    for item in as_items(buffer, rows(0, 4)):
        assert buffer.push([item] if isinstance(item, list) else item, 0) == 1
    assert buffer.push(as_items(buffer, rows(4, 4)), 0) == 4
    assert set(numbers(draw(buffer, 8))) <= set(range(8))
    assert buffer.count() == 8


def test_changing_what_was_pushed_or_sampled_changes_nothing_inside(make: Make) -> None:
    buffer, block = make(), rows(0, 8)
    push(buffer, block, 0)
    for name in list(block.keys()):
        block[name][:] = 99
    batch = draw(buffer, 8)
    numbers(batch)
    for part in batch if isinstance(batch, list) else [batch]:
        for name in list(part.keys()):
            part[name][:] = 77
    assert set(numbers(draw(buffer, 8))) <= set(range(8))


def test_too_few_items_raise_and_none_wanted_gives_none(make: Make) -> None:
    buffer = make()
    with raises(BufferUnderflowError):
        draw(buffer, 1)
    push(buffer, rows(0, 3), 0)
    with raises(BufferUnderflowError):
        draw(buffer, 4)
    assert len(draw(buffer, 0)) == 0


def own_sample(buffer: IBuffer, size: int) -> Any:
    """Returns one batch, as a training loop of its user's own asks for it."""
    if isinstance(buffer, SequenceReplayBuffer):
        return buffer.sample(size, 1, 0)
    return buffer.sample(size, 0)


def test_a_loop_of_ones_own_gets_none_and_a_warning_where_there_are_too_few_items(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = make()
    assert own_sample(buffer, 1) is None and 'has 0 items' in caplog.text
    push(buffer, rows(0, 3), 0)
    caplog.clear()
    assert own_sample(buffer, 4) is None and 'has 3 items' in caplog.text
    with raises(BufferUnderflowError):
        draw(buffer, 4)
    caplog.clear()
    assert len(own_sample(buffer, 3)) == 3 and not caplog.text
    assert own_sample(buffer, 4) is None


def test_batches_gives_as_many_as_asked(make: Make) -> None:
    buffer = make()
    push(buffer, rows(0, 30), 0)
    batches = list(buffer.batches(5, 6, 0))
    assert len(batches) == 5
    for batch in batches:
        assert len(numbers(batch)) == 6


def test_update_takes_what_a_sample_carries(make: Make) -> None:
    buffer = make()
    push(buffer, rows(0, 30), 0)
    batch = draw(buffer, 6)
    ids = {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx') if name in batch}
    buffer.update({**ids, 'priority': np.ones(6)})


def test_clear_leaves_an_empty_usable_buffer(make: Make) -> None:
    buffer = make()
    push(buffer, rows(0, 30), 0)
    buffer.clear()
    assert buffer.count() == 0
    push(buffer, rows(100, 5), 0)
    assert set(numbers(draw(buffer, 5))) <= set(range(100, 105))


@pytest.mark.parametrize('through_file', [True, False])
def test_loading_continues_bit_identically_and_states_are_independent(
    make: Make, through_file: bool, tmp_path
) -> None:
    buffer, other = make(size=16), make(size=16, seed=5)
    push(buffer, rows(0, 25), 3)
    draw(buffer, 8)
    if through_file:
        buffer.save_data(str(tmp_path / 'state'))
        other.load_data(str(tmp_path / 'state'))
        assert [path.name for path in tmp_path.iterdir()] == ['state']
    else:
        state = buffer.state_dict()
        other.load_state_dict(state)
        before = draw(other, 8, 1)
        other.load_state_dict(state)
        assert numbers(draw(other, 8, 1)) == numbers(before)
        other.load_state_dict(state)
    for step in range(6):
        expected, got = (
            Batch.cat(batch) if isinstance(batch, list) else batch
            for batch in (draw(buffer, 8, step), draw(other, 8, step))
        )
        for name in list(expected.keys()):
            np.testing.assert_array_equal(got[name], expected[name])
        push(buffer, rows(25 + 3 * step, 3), step)
        push(other, rows(25 + 3 * step, 3), step)


def test_demonstrations_are_loaded_as_rows(make: Make) -> None:
    buffer = make()
    push(buffer, rows(0, 4), 0)
    buffer.load_state_dict({'data': as_items(buffer, rows(4, 6))})
    assert buffer.count() == 10


def test_same_seed_gives_the_same_samples(make: Make) -> None:
    samples = []
    for seed in (1, 1, np.random.SeedSequence(1), 2):
        buffer = make(size=1000, seed=seed)
        push(buffer, rows(0, 1000), 0)
        samples.append(numbers(draw(buffer, 64)))
    assert samples[0] == samples[1] == samples[2] != samples[3]


def test_start_and_close_may_be_called_again(make: Make) -> None:
    buffer = make()
    for method in ('start', 'start', 'close', 'close'):
        getattr(buffer, method, lambda: None)()


def test_type_defaults_to_advanced_and_unknown_ones_name_the_closest() -> None:
    assert get_buffer_cls({}) is get_buffer_cls({'type': 'advanced'})
    assert (
        type(create_buffer({'replay_buffer_size': 4}, None, 'exp', 'mine')).__name__ == 'AdvancedReplayBuffer'
    )
    with raises(ConfigError):
        get_buffer_cls({'type': 'naiv'})


FIELDS = np.dtype(
    {'names': ['a', 'b'], 'formats': [('u1', (3,)), [('0', '<f8'), ('1', '<i4', (2,))]]}, align=True
)


def structured(start: int, count: int) -> Batch:
    """Returns the transitions of ``rows`` as steps of one long episode, with observations of several fields."""

    def obs(number: np.ndarray) -> np.ndarray:
        column = np.zeros(count, FIELDS)
        column['a'], column['b']['0'] = number[:, None], number
        column['b']['1'] = -number[:, None]
        return column

    number = np.arange(start, start + count)
    batch = rows(start, count).replace(obs=obs(number), next_obs=obs(number + 1))
    return batch.replace(terminated=np.arange(count) == count - 1)


def assert_structured(batch: Any) -> None:
    """Makes sure that every field of a row tells the row's number."""
    batch = flat(batch)
    for name, number in (('obs', batch['action']), ('next_obs', batch['action'] + 1)):
        column = batch[name]
        assert column.dtype == FIELDS and column.shape == (len(batch),)
        np.testing.assert_array_equal(column['a'], np.repeat(number[:, None], 3, 1))
        np.testing.assert_array_equal(column['b']['0'], number)
        np.testing.assert_array_equal(column['b']['1'], -np.repeat(number[:, None], 2, 1))


def test_observations_with_fields_stay_whole(make: Make, tmp_path: Any) -> None:
    buffer = make(size=16)
    for start in (0, 12, 24):  # around the end of the ring
        block = structured(start, 12)
        buffer.push([block] if isinstance(buffer, EpisodeReplayBuffer) else block, start)
    assert 0 < buffer.count() <= 16
    batches = [draw(buffer, min(buffer.count(), 8)) for _ in range(4)]
    for batch in batches:
        assert_structured(batch)
        if not isinstance(batch, list) and 'mask' in batch:
            assert (batch['obs'][~batch['mask']] == np.zeros((), FIELDS)).all()
    other = make(size=16)
    other.load_state_dict(buffer.state_dict())
    buffer.save_data(str(tmp_path / 'buffer'))
    third = make(size=16)
    third.load_data(str(tmp_path / 'buffer'))
    for twin in (other, third):
        assert twin.count() == buffer.count()
        assert_structured(draw(twin, min(twin.count(), 8)))
