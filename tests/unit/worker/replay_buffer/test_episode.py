"""Laws of the buffer of whole episodes, against a list that is searched anew each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_texts import raises
from test_sequence import EPISODE, STEP, steps, without

from rlframe.data import Batch
from rlframe.errors import CheckpointMismatchError
from rlframe.worker.replay_buffer import EpisodeReplayBuffer


def episode(number: int, length: int, ending: str = 'terminated') -> Batch:
    return steps(0, number, 0, length, length, ending)


def number_of(drawn: Batch) -> int:
    """Returns which episode this is, having checked that it is whole and not mixed up."""
    np.testing.assert_array_equal(drawn['obs'][:, STEP], np.arange(len(drawn)))
    np.testing.assert_array_equal(drawn['next_obs'], drawn['obs'] + [0, 0, 1])
    assert (drawn['terminated'] | drawn['truncated']).tolist() == [False] * (len(drawn) - 1) + [True]
    (number,) = set(drawn['obs'][:, EPISODE].astype(int).tolist())
    return number


def test_the_newest_episodes_are_kept_whole() -> None:
    rng, lengths = np.random.default_rng(0), []
    limits = dict(replay_buffer_size=5)
    buffer = EpisodeReplayBuffer(limits)
    for step in range(12):
        if step == 6:
            twin = EpisodeReplayBuffer(limits, seed=7)
            twin.load_state_dict(buffer.state_dict())
            buffer = twin
        new = [int(n) for n in rng.integers(1, 7, size=rng.integers(1, 6))]
        pushed = [episode(len(lengths) + i, length) for i, length in enumerate(new)]
        assert buffer.push(pushed, 0) == len(new)
        lengths += new
        expected = lengths[-5:]
        assert buffer.episode_len == expected and buffer.count() == len(expected)
        assert buffer.push_count == len(lengths)
        numbers = [number_of(drawn) for drawn in buffer.sample(buffer.count(), 0)]
        assert sorted(numbers) == list(range(len(lengths) - len(expected), len(lengths)))
    with raises(CheckpointMismatchError):
        EpisodeReplayBuffer(dict(replay_buffer_size=6)).load_state_dict(buffer.state_dict())


def test_every_episode_is_drawn_equally_often_whatever_its_length() -> None:
    buffer = EpisodeReplayBuffer(dict(replay_buffer_size=100), seed=2)
    buffer.push([episode(number, length) for number, length in enumerate((1, 40, 3, 20))], 0)
    drawn = [number_of(e) for _ in range(300) for e in buffer.sample(2, 0)]
    np.testing.assert_allclose(np.bincount(drawn), 150, atol=40)


def test_an_episode_comes_as_a_batch_or_as_a_list_of_mappings() -> None:
    buffer = EpisodeReplayBuffer(dict(replay_buffer_size=30))
    assert buffer.push(episode(0, 3), 0) == 1
    assert buffer.push([[dict(row) for row in episode(1, 4)]], 0) == 1
    assert buffer.push([episode(2, 2, 'truncated'), [dict(row) for row in episode(3, 1)]], 0) == 2
    assert buffer.episode_len == [3, 4, 2, 1]
    done = without(episode(4, 3), 'terminated', 'truncated').replace(done=np.array([False, False, True]))
    assert EpisodeReplayBuffer(None).push(done, 0) == 1


@pytest.mark.parametrize(
    ('data', 'error'),
    [
        ([dict(row) for row in episode(0, 3)], TypeError),
        ([[]], TypeError),
        ([episode(0, 2), steps(0, 1, 0, 3, 9)], ValueError),
        (Batch.cat([episode(0, 2), episode(1, 2)]), ValueError),
        (Batch.cat([episode(0, 2), steps(0, 1, 0, 2, 9)]), ValueError),
        ([episode(0, 2), episode(1, 2).replace(x=np.ones(2))], ValueError),
        (Batch(obs=np.zeros((2, 3))), ValueError),
    ],
)
def test_what_is_no_whole_episode_is_refused_and_nothing_is_stored(data: Any, error: type[Exception]) -> None:
    buffer = EpisodeReplayBuffer(None)
    with raises(error):
        buffer.push(data, 0)
    assert buffer.count() == buffer.push_count == 0
    assert buffer.push([], 0) == 0


def test_ranges_are_over_the_age_of_episodes_and_too_few_give_none(caplog: pytest.LogCaptureFixture) -> None:
    buffer = EpisodeReplayBuffer(dict(replay_buffer_size=5))
    buffer.push([episode(number, 2) for number in range(8)], 0)
    assert sorted(number_of(e) for e in buffer.sample(2, 0, sample_range=slice(-2, None))) == [6, 7]
    assert len(buffer.sample(20, 0, replace=True)) == 20
    assert buffer.sample(6, 0) is None and 'has 5 items' in caplog.text
    assert buffer.sample(0, 0) == []
