"""Rows of env steps come out of the recorder once each, as n-step rows or blocks, whatever their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data.trajectory import TrajectoryRecorder

GAMMA = 0.9
Plan = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


@st.composite
def plans(draw: st.DrawFn, whole: bool = False) -> tuple[int, Plan]:
    """Number of envs and, step by step, which of them answered in which order and what ended."""
    env_num = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.15, 0.5]))
    plan: Plan = []
    for _ in range(draw(st.integers(1, 25))):
        ids = rng.permutation(env_num)[: env_num if whole else rng.integers(1, env_num + 1)]
        terminated = rng.random(len(ids)) < share
        plan.append((ids, terminated, ~terminated & (rng.random(len(ids)) < share)))
    return env_num, plan


class Source:
    """Makes the rows of a plan: obs is (env, number of the row), reward random but known."""

    def __init__(self, env_num: int) -> None:
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(env_num)]

    def make(self, ids: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> dict[str, np.ndarray]:
        number = np.array([len(self.rows[i]) for i in ids])
        obs = np.stack([ids, number], axis=1).astype(np.float32)
        reward = ((ids * 7 + number * number * 3) % 11).astype(np.float32)
        columns = {
            'obs': obs,
            'next_obs': obs + np.array([0, 0.5]),
            'reward': reward,
            'terminated': terminated.copy(),
            'truncated': truncated.copy(),
            'action': number,
        }
        columns['next_obs'] = columns['next_obs'].astype(np.float32)
        for row, env in enumerate(ids):
            self.rows[env].append({name: column[row].copy() for name, column in columns.items()})
        return columns


def feed(recorder: TrajectoryRecorder, source: Source, plan: Plan) -> None:
    for ids, terminated, truncated in plan:
        rows = source.make(ids, terminated, truncated)
        recorder.append(rows, ids, terminated | truncated)
        for column in rows.values():
            column[:] = 77  # nothing inside may alias what was given


def done(row: dict[str, Any]) -> bool:
    return bool(row['terminated'] or row['truncated'])


@settings(max_examples=25, deadline=None)
@given(plans())
def test_one_step_rows_come_out_as_they_came_in(case: tuple[int, Plan]) -> None:
    env_num, plan = case
    recorder, source = TrajectoryRecorder(env_num), Source(env_num)
    feed(recorder, source, plan)
    batch = recorder.take()
    expected = [(env, i) for env in range(env_num) for i in range(len(source.rows[env]))]
    assert sorted(map(tuple, batch['obs'].astype(int).tolist())) == expected
    order = [(int(e), int(n)) for e, n in batch['obs']]
    for row, (env, number) in zip(batch, order, strict=True):
        for name, value in source.rows[env][number].items():
            np.testing.assert_array_equal(row[name], value)
    assert [env for env, _ in order] == [env for ids, _, _ in plan for env in ids], 'kept in order of arrival'


@settings(max_examples=25, deadline=None)
@given(plans(), st.integers(2, 6))
def test_n_step_rows_equal_windows_written_out(case: tuple[int, Plan], nstep: int) -> None:
    env_num, plan = case
    recorder, source = TrajectoryRecorder(env_num, nstep, GAMMA), Source(env_num)
    feed(recorder, source, plan)
    total = sum(len(rows) for rows in source.rows)
    assert len(recorder) + recorder.held == total
    if len(recorder) == 0:
        return
    got: list[list[int]] = [[] for _ in range(env_num)]
    for row in recorder.take():
        env, number = (int(x) for x in row['obs'])
        got[env].append(number)
        rows = source.rows[env]
        last = number
        while last - number + 1 < nstep and not done(rows[last]):
            last += 1
        window = rows[number : last + 1]
        assert row['reward'] == pytest.approx(sum(GAMMA**k * r['reward'] for k, r in enumerate(window)))
        assert row['value_gamma'] == pytest.approx(GAMMA ** len(window))
        for name in ('next_obs', 'terminated', 'truncated'):
            np.testing.assert_array_equal(row[name], window[-1][name])
        assert row['action'] == number
    for env, rows in enumerate(source.rows):
        assert got[env] == list(range(len(got[env]))), 'in time order, none missing'
        waiting = rows[len(got[env]) :]
        assert len(waiting) < nstep and not any(done(row) for row in waiting)


@settings(max_examples=20, deadline=None)
@given(plans(), st.data(), st.sampled_from([1, 3]))
def test_take_keeps_the_rest_and_what_it_gave_is_never_written_again(
    case: tuple[int, Plan], data: st.DataObject, nstep: int
) -> None:
    env_num, plan = case
    recorder, source = TrajectoryRecorder(env_num, nstep, GAMMA), Source(env_num)
    whole, again = TrajectoryRecorder(env_num, nstep, GAMMA), Source(env_num)
    taken, copies = [], []
    for step in plan:
        feed(recorder, source, [step])
        feed(whole, again, [step])
        if len(recorder):
            count = data.draw(st.integers(0, len(recorder)))
            if count:
                taken.append(recorder.take(count))
                copies.append(taken[-1].map(np.copy))
    rest = len(recorder)
    assert sum(map(len, taken)) + rest + recorder.held == sum(len(rows) for rows in source.rows)
    for batch, copy in zip(taken, copies, strict=True):
        np.testing.assert_array_equal(batch['obs'], copy['obs'])
    if len(whole):
        parts = [batch['obs'] for batch in taken] + ([recorder.take()['obs']] if rest else [])
        np.testing.assert_array_equal(np.concatenate(parts), whole.take()['obs'])


def test_taking_more_than_there_is_or_nothing_is_refused() -> None:
    recorder = TrajectoryRecorder(2)
    feed(recorder, Source(2), [(np.arange(2), np.zeros(2, bool), np.zeros(2, bool))])
    for count in (3, 0, -1):
        with raises(ValueError):
            recorder.take(count)
    recorder.take()
    with raises(ValueError):
        recorder.take()


@settings(max_examples=20, deadline=None)
@given(plans())
def test_a_block_holds_each_env_s_rows_in_time_order_and_masks_the_rest(case: tuple[int, Plan]) -> None:
    env_num, plan = case
    recorder, source = TrajectoryRecorder(env_num), Source(env_num)
    feed(recorder, source, plan)
    counts = [len(rows) for rows in source.rows]
    np.testing.assert_array_equal(recorder.samples_per_env(), counts)
    block = recorder.take_block()
    assert len(block) == max(counts) and len(recorder) == 0
    assert ('mask' in block) == (min(counts) < max(counts))
    for env, rows in enumerate(source.rows):
        np.testing.assert_array_equal(block['obs'][: len(rows), env, 1], np.arange(len(rows)))
        assert (block['obs'][: len(rows), env, 0] == env).all()
        if 'mask' in block:
            np.testing.assert_array_equal(block['mask'][:, env], np.arange(len(block)) < len(rows))
            assert not block['reward'][len(rows) :, env].any()


@settings(max_examples=20, deadline=None)
@given(plans(), st.integers(1, 4), st.integers(0, 3))
def test_discard_forgets_just_these_envs_held_rows(case: tuple[int, Plan], nstep: int, which: int) -> None:
    env_num, plan = case
    recorder, source = TrajectoryRecorder(env_num, nstep, GAMMA), Source(env_num)
    feed(recorder, source, plan)
    held, finished = recorder.held, len(recorder)
    env = np.array([which % env_num])
    dropped = recorder.discard(env)
    assert recorder.held == held - dropped and len(recorder) == finished
    assert recorder.discard(env) == 0
    cut = len(source.rows[env[0]])
    feed(recorder, source, [(env, np.array([True]), np.array([False]))])
    last = recorder.take()[-1]
    assert last['obs'].tolist() == [env[0], cut], 'the discarded rows are in no later window'
    assert last['reward'] == source.rows[env[0]][cut]['reward']


@settings(max_examples=20, deadline=None)
@given(plans(), plans(), st.integers(1, 4))
def test_a_loaded_recorder_goes_on_identically(
    first: tuple[int, Plan], second: tuple[int, Plan], nstep: int
) -> None:
    env_num = max(first[0], second[0])
    make = lambda: TrajectoryRecorder(env_num, nstep, GAMMA)  # noqa: E731
    recorder, other, source = make(), make(), Source(env_num)
    feed(recorder, source, first[1])
    state = recorder.state_dict()
    other.load_state_dict(state)
    for ids, terminated, truncated in second[1]:
        rows = source.make(ids, terminated, truncated)
        for each in (recorder, other):
            each.append(rows, ids, terminated | truncated)
    assert (len(other), other.held, other.in_order) == (len(recorder), recorder.held, recorder.in_order)
    if len(recorder):
        expected, got = recorder.take(), other.take()
        assert list(expected.keys()) == list(got.keys())
        for name, column in expected.items():
            np.testing.assert_array_equal(got[name], column)


def test_clear_forgets_everything_and_counts_it() -> None:
    recorder, source = TrajectoryRecorder(2, 3, GAMMA), Source(2)
    step = (np.arange(2), np.zeros(2, bool), np.zeros(2, bool))
    feed(recorder, source, [step] * 5)
    assert recorder.clear() == 10 and len(recorder) == recorder.held == 0
    feed(recorder, source, [step] * 3)
    assert recorder.take()['obs'][:, 1].tolist() == [5, 5]
