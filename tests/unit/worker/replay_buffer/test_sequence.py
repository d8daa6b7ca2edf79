"""Laws of the buffer of sequences, against a reference that looks at every pushed step again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_texts import raises

from rlframe.data import Batch
from rlframe.worker.replay_buffer import SequenceReplayBuffer

ENV, EPISODE, STEP = 0, 1, 2


def steps(env: int, episode: int, first: int, stop: int, length: int, ending: str = 'terminated') -> Batch:
    """Returns steps ``first`` to ``stop - 1`` of an episode of ``length``; every obs is (env, episode, step)."""
    step = np.arange(first, stop)
    obs = np.stack([np.full(len(step), env), np.full(len(step), episode), step], 1).astype(np.float32)
    last = step == length - 1
    return Batch(
        obs=obs,
        next_obs=obs + np.array([0, 0, 1], np.float32),
        reward=(100 * obs[:, EPISODE] + step).astype(np.float32),
        terminated=last & (ending == 'terminated'),
        truncated=last & (ending == 'truncated'),
        env_id=np.full(len(step), env, np.int32),
        episode_step=step.astype(np.int32),
    )


def without(rows: Batch, *names: str) -> Batch:
    return Batch({name: column for name, column in rows.items() if name not in names})


class Reference:
    """Knows all steps in the order of their arrival and finds sequences by looking at each."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.rows = capacity, []

    def push(self, rows: Batch) -> None:
        self.rows += [tuple(int(x) for x in obs) for obs in rows['obs']]
        self.rows = self.rows[-self.capacity :]

    def sequence(self, drawn: tuple[int, ...], burn_in: int, length: int) -> list[tuple[int, ...] | None]:
        own = sorted(row for row in self.rows if row[:2] == drawn[:2])
        begin = max(min(drawn[STEP], own[-1][STEP] - length + 1), own[0][STEP])
        wanted = [(*drawn[:2], step) for step in range(begin - burn_in, begin + length)]
        return [row if row in own else None for row in wanted]


def sequences(batch: Any) -> list[list[tuple[int, ...] | None]]:
    """Returns the steps of each sequence, None for padding; fails if columns are mixed up or padding is not zero."""
    mask = batch['mask']
    np.testing.assert_array_equal(batch['next_obs'][mask], batch['obs'][mask] + [0, 0, 1])
    np.testing.assert_array_equal(
        batch['reward'][mask], 100 * batch['obs'][mask][:, EPISODE] + batch['obs'][mask][:, STEP]
    )
    for column in dict(batch.items()).values():
        if column.shape[:2] == mask.shape:
            assert not column[~mask].any()
    return [
        [tuple(int(x) for x in obs) if real else None for obs, real in zip(row, own, strict=True)]
        for row, own in zip(batch['obs'], mask, strict=True)
    ]


def interleaved(rng: np.random.Generator, env_num: int, count: int, breaks: bool) -> Batch:
    """Returns steps of several envs in a random order, in time order per env; some episodes break off."""
    place = [[env, 0, 0, int(rng.integers(1, 9))] for env in range(env_num)]
    rows = []
    for _ in range(count):
        own = place[int(rng.integers(env_num))]
        env, episode, step, length = own
        rows.append(steps(env, episode, step, step + 1, length))
        own[2] += 1
        if own[2] == length or (breaks and rng.random() < 0.1):
            own[1:] = [episode + 1, 0, int(rng.integers(1, 9))]
    return Batch.cat(rows)


@pytest.mark.parametrize('priority', [False, True])
def test_every_sequence_is_that_of_the_reference_in_random_cases(priority: bool) -> None:
    rng = np.random.default_rng(1)
    padded = whole = 0
    for case in range(8):
        capacity, env_num = int(rng.integers(4, 60)), int(rng.integers(1, 5))
        burn_in, length = int(rng.integers(0, 4)), int(rng.integers(1, 8))
        cfg = dict(replay_buffer_size=capacity, burn_in=burn_in, priority=priority)
        buffer, reference = SequenceReplayBuffer(cfg, seed=case), Reference(capacity)
        breaks = case % 2 == 0
        data = interleaved(rng, env_num, 150, breaks)
        data = data if breaks else without(data, 'episode_step')
        start = 0
        while start < len(data):
            part = data[start : start + int(rng.integers(1, 40))]
            start += len(part)
            assert buffer.push(part, start) == len(part)
            reference.push(part)
            have = min(start, capacity)
            assert buffer.count() == have
            # by drawn step
            expected = {row: reference.sequence(row, burn_in, length) for row in reference.rows}
            got = sequences(buffer.sample(min(have, 16), length, 0))
            for sequence in got:
                assert len(sequence) == burn_in + length
                assert sequence in expected.values()
                padded += None in sequence
                whole += None not in sequence
    assert padded > 50 and whole > 50


def test_every_step_is_the_drawn_one_equally_often() -> None:
    lengths = [1, 3, 7, 12]
    buffer, reference = SequenceReplayBuffer(dict(replay_buffer_size=100, burn_in=1), seed=3), Reference(100)
    episodes = [steps(0, number, 0, length, length) for number, length in enumerate(lengths)]
    buffer.push(episodes, 0)
    for episode in episodes:
        reference.push(episode)
    drawn = [str(reference.sequence(row, 1, 5)) for row in reference.rows]
    expected = {sequence: drawn.count(sequence) / len(drawn) for sequence in drawn}
    count, seen = 2000, dict.fromkeys(drawn, 0)
    for _ in range(count // 20):
        for sequence in sequences(buffer.sample(20, 5, 0)):
            seen[str(sequence)] += 1
    chi2 = sum((seen[s] - count * p) ** 2 / (count * p) for s, p in expected.items())
    assert chi2 < 40, f'{len(expected)} sequences'  # 0.999 quantile of 14 degrees of freedom is 36
    assert expected[str(reference.sequence((0, 3, 11), 1, 5))] == 5 / 23, 'the end is in as many as any other'


def test_drawn_steps_are_distinct_unless_repetition_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    buffer = SequenceReplayBuffer(dict(replay_buffer_size=50))
    buffer.push([steps(0, 0, 0, 10, 10)], 0)
    firsts = [sequence[0] for sequence in sequences(buffer.sample(10, 1, 0))]
    assert len(set(firsts)) == 10
    assert buffer.sample(11, 1, 0) is None and 'has 10 items' in caplog.text
    assert len(buffer.sample(30, 1, 0, replace=True)) == 30
    newest = sequences(buffer.sample(3, 1, 0, sample_range=slice(-3, None)))
    assert {sequence[0][STEP] for sequence in newest} == {7, 8, 9}
    assert len(buffer.sample(0, 4, 0)) == 0
    with raises(ValueError):
        buffer.sample(1, 0, 0)


def test_episodes_of_a_list_never_join_even_without_an_end() -> None:
    buffer = SequenceReplayBuffer(dict(replay_buffer_size=50))
    buffer.push([steps(0, 0, 0, 3, 9), steps(0, 0, 3, 6, 9)], 0)
    buffer.push([steps(0, 0, 6, 9, 9)], 0)
    got = sequences(buffer.sample(9, 3, 0))
    assert {tuple(row[STEP] for row in sequence) for sequence in got} == {(0, 1, 2), (3, 4, 5), (6, 7, 8)}


def test_steps_of_one_env_need_no_env_id_and_those_of_several_are_refused_without() -> None:
    whole = without(steps(0, 0, 0, 9, 9), 'env_id', 'episode_step')
    buffer = SequenceReplayBuffer(dict(replay_buffer_size=50))
    for part in (whole[:1], whole[1:2], whole[2:6], whole[6:]):
        buffer.push(part, 0)
    (sequence,) = {tuple(s) for s in sequences(buffer.sample(4, 9, 0))}
    assert [row[STEP] for row in sequence] == list(range(9))
    mixed = Batch.cat([steps(0, 1, 0, 1, 9), steps(1, 0, 0, 1, 9)])
    with raises(ValueError):
        buffer.push(without(mixed, 'env_id', 'episode_step'), 0)
    assert buffer.count() == 9


def test_what_is_no_steps_is_refused_by_name() -> None:
    buffer = SequenceReplayBuffer(None)
    with raises(ValueError):
        buffer.push(Batch(obs=np.zeros((3, 2))), 0)
    with raises(ValueError):
        buffer.push(Batch(done=np.zeros((3, 4), bool)), 0)
    with pytest.raises(TypeError, match='got str items'):
        buffer.push(['episode'], 0)
    assert buffer.push([], 0) == buffer.count() == 0


def test_priorities_decide_what_is_drawn() -> None:
    cfg = dict(replay_buffer_size=20, priority=True, alpha=1.0, beta=1.0, is_normalization='batch')
    buffer = SequenceReplayBuffer(cfg)
    buffer.push([steps(0, 0, 0, 20, 20)], 0)
    batch = buffer.sample(20, 1, 0)
    assert sorted(batch['obs'][:, 0, STEP]) == list(range(20)), 'equal at first'
    np.testing.assert_array_equal(batch['IS'], np.ones(20))
    np.testing.assert_array_equal(batch['replay_unique_id'], batch['obs'][:, 0, STEP])
    ids = {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
    buffer.update({**ids, 'priority': np.where(batch['replay_unique_id'] == 7, 3.0, 1.0)})
    drawn = buffer.sample(22, 1, 0)
    np.testing.assert_allclose(drawn['IS'], np.where(drawn['replay_unique_id'] == 7, 1 / 3, 1.0), rtol=1e-3)
    (sequence,) = {tuple(s) for s in sequences(buffer.sample(8, 4, 0, sample_range=slice(7, 8)))}
    assert [row[STEP] for row in sequence] == [7, 8, 9, 10]


def test_batches_have_the_configured_length() -> None:
    buffer = SequenceReplayBuffer(dict(replay_buffer_size=50, unroll_len=6, burn_in=2))
    buffer.push([steps(0, 0, 0, 30, 30)], 0)
    batches = list(buffer.batches(3, 5, 0))
    assert [batch['mask'].shape for batch in batches] == [(5, 8)] * 3


def test_clear_ends_running_episodes() -> None:
    buffer = SequenceReplayBuffer(dict(replay_buffer_size=20, priority=True))
    buffer.push(steps(0, 0, 0, 4, 9), 0)
    buffer.clear()
    assert buffer.count() == 0
    buffer.push(steps(0, 0, 4, 9, 9), 0)
    (sequence,) = {tuple(s) for s in sequences(buffer.sample(3, 9, 0))}
    assert [row[STEP] if row else None for row in sequence] == [4, 5, 6, 7, 8, None, None, None, None]
