"""Hindsight gives sampled steps goals that were reached, with the rewards and ends that follow from them, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from buffer_helpers import assert_same
from goal_rows import NOWHERE, Equal, episode

from rlframe.data import Array, Batch
from rlframe.data.trajectory import NStepWindow
from rlframe.errors import ConfigError, EnvError, EpisodeTooLongError
from rlframe.worker.replay_buffer import NaiveReplayBuffer, create_buffer
from rlframe.worker.replay_buffer.running_episodes import MARKS


def filled(
    *episodes: Batch, ends: bool = True, type: str = 'naive', size: int = 100, **hindsight: Any
) -> Any:
    options = {'strategy': 'future', **hindsight}
    buffer = create_buffer(type, replay_buffer_size=size, hindsight=options)
    buffer.hindsight.goals = Equal(ends)
    buffer.push(list(episodes), 0)
    return buffer


def drawn(buffer: Any, count: int = 4000) -> Batch:
    """Returns many samples, some of them several times."""
    size = min(buffer.count(), 32)
    return Batch.cat([buffer.sample(size, 0) for _ in range(-(-count // size))])


def goals(rows: Batch) -> tuple[Array, Array, Array]:
    """Returns the episode and the step of each row, and its goal."""
    np.testing.assert_array_equal(rows['obs']['desired_goal'], rows['next_obs']['desired_goal'])
    number, step = rows['next_obs']['achieved_goal'].T
    return number, step, rows['obs']['desired_goal']


def test_rewards_and_ends_are_those_of_the_new_goal() -> None:
    rows = drawn(filled(episode(1, 5), episode(2, 3)))
    number, step, goal = goals(rows)
    is_reached = (goal == np.stack([number, step], axis=1)).all(1)
    np.testing.assert_array_equal(rows['reward'], np.where(is_reached, 0, -1))
    np.testing.assert_array_equal(rows['terminated'], is_reached)
    is_last = step == np.where(number == 1, 4, 2)
    np.testing.assert_array_equal(rows['truncated'], is_last & ~is_reached)
    np.testing.assert_array_equal(rows['action'], step)
    assert 0.2 < is_reached.mean() < 0.6
    assert set(rows.columns) == {*episode(1, 2).columns} - {'env_id', 'episode_step'}


@pytest.mark.parametrize('nstep', [1, 3])
def test_rewards_are_asked_for_with_each_number_of_the_goals_in_one_piece(nstep: int) -> None:
    class Strict(Equal):
        def reward(self, achieved: Array, desired: Array) -> Array:
            asked.append(achieved.flags.f_contiguous and desired.flags.f_contiguous)
            return super().reward(achieved, desired)

    asked: list[bool] = []
    buffer = filled(episode(1, 5), nstep=nstep)
    buffer.hindsight.goals = Strict()
    buffer.sample(5, 0)
    assert asked == [True]


def test_where_goals_end_no_episode_the_stored_ends_stay() -> None:
    rows = drawn(filled(episode(1, 4), ends=False))
    assert not rows['terminated'].any()
    np.testing.assert_array_equal(rows['truncated'], rows['action'] == 3)


@pytest.mark.parametrize('strategy', ['future', 'final', 'episode', 'random'])
def test_each_strategy_draws_from_its_steps_uniformly(strategy: str) -> None:
    lengths = {1: 3, 2: 2}
    rows = drawn(filled(*(episode(*pair) for pair in lengths.items()), strategy=strategy, share=1.0), 20_000)
    number, step, goal = goals(rows)
    everything = {(n, t) for n, length in lengths.items() for t in range(length)}
    for n, t in everything:
        mine = goal[(number == n) & (step == t)]
        own = {(n, later) for later in range(lengths[n])}
        expected = {
            'future': {(n, later) for later in range(t, lengths[n])},
            'final': {(n, lengths[n] - 1)},
            'episode': own,
            'random': everything,
        }[strategy]
        found, count = np.unique(mine, axis=0, return_counts=True)
        assert set(map(tuple, found.tolist())) == expected
        np.testing.assert_allclose(count / count.sum(), 1 / len(expected), atol=0.04)


@pytest.mark.parametrize('share', [0.0, 0.3, 0.8, 1.0])
def test_a_share_of_the_rows_gets_another_goal(share: float) -> None:
    _, _, goal = goals(drawn(filled(episode(1, 50), share=share)))
    np.testing.assert_allclose((goal != NOWHERE).any(1).mean(), share, atol=0.03)


def test_without_a_share_batches_are_those_without_hindsight() -> None:
    ours = filled(episode(1, 20), share=0.0)
    theirs = create_buffer('naive', replay_buffer_size=100)
    whole = episode(1, 20)
    theirs.push(Batch({name: whole[name] for name in whole.columns if name not in MARKS}), 0)
    assert_same(ours.sample(10, 0), theirs.sample(10, 0))


def test_steps_enter_when_their_episode_is_over_whatever_other_envs_do() -> None:
    buffer = filled()
    first, second, third = episode(1, 3, env=0), episode(2, 5, env=1), episode(3, 4, env=0)
    sequence = [*(row for pair in zip(range(3), range(3), strict=True) for row in pair), 0, 3, 1, 4]
    source = [first, second, first, second, first, second, third, second, third, second]
    counts = []
    for which, t in zip(source, sequence, strict=True):
        buffer.push(which[t : t + 1], 0)
        counts.append(buffer.count())
    assert counts == [0, 0, 0, 0, 3, 3, 3, 3, 3, 8]
    number, step, goal = goals(drawn(buffer))
    changed = goal[:, 0] >= 0
    assert (goal[changed, 0] == number[changed]).all() and (goal[changed, 1] >= step[changed]).all()
    buffer.push(third[2:], 0)
    assert buffer.count() == 12


def test_an_episode_that_was_cut_is_over_when_its_env_begins_another() -> None:
    buffer = filled()
    buffer.push(episode(1, 5)[:3], 0)
    buffer.push(episode(2, 2), 0)
    assert buffer.count() == 5
    number, _, goal = goals(drawn(buffer))
    assert goal[number == 1, 1].max() == 2


def test_goals_of_overwritten_steps_are_not_given() -> None:
    buffer = filled(*(episode(n, 6) for n in range(5)), size=10, strategy='episode', share=1.0)
    number, _, goal = goals(drawn(buffer))
    kept = {(3.0, t) for t in range(2, 6)} | {(4.0, t) for t in range(6)}
    assert {*map(tuple, goal.tolist())} == kept and (goal[:, 0] == number).all()


def windows(rows: Batch, nstep: int, discount_factor: float) -> Batch:
    """Returns the n-step rows that a collector makes of an episode."""
    window = NStepWindow(1, nstep, discount_factor)
    found = []
    for t in range(len(rows)):
        done = rows['terminated'][t : t + 1] | rows['truncated'][t : t + 1]
        found.append(window.push(dict(rows[t : t + 1].items()), np.zeros(1, np.int64), done)[0])
    return Batch.cat([Batch(columns) for columns in found if len(columns['reward'])])


@pytest.mark.parametrize('strategy', ['future', 'final'])
def test_n_step_rows_are_those_of_an_episode_with_that_goal(strategy: str) -> None:
    whole = episode(1, 6)
    buffer = filled(whole, strategy=strategy, nstep=3, discount_factor=0.9)
    rows = drawn(buffer, 500)
    for i in range(len(rows)):
        t, goal = int(rows['action'][i]), rows['obs']['desired_goal'][i]
        told = whole.map(np.copy)
        for name in ('obs', 'next_obs'):
            told[name]['desired_goal'] = goal
        ends = Equal().terminated(told['next_obs']['achieved_goal'], goal)
        told = told.replace(
            reward=Equal().reward(told['next_obs']['achieved_goal'], goal).astype(np.float32),
            terminated=ends,
            truncated=whole['truncated'] & ~ends,
        )
        stop = int(ends.argmax()) + 1 if ends.any() and ends.argmax() >= t else 6
        told = told[:stop] if stop > t else told
        told = told.replace(terminated=told['terminated'] & (np.arange(len(told)) == stop - 1))
        expected = windows(told, 3, 0.9)[t : t + 1]
        assert_same(Batch({name: expected[name] for name in rows.columns}), rows[i : i + 1])


def test_priorities_and_use_refer_to_the_stored_steps() -> None:
    buffer = filled(episode(1, 10), type='advanced')
    rows = buffer.sample(8, 0)
    buffer.update({**rows, 'priority': np.where(rows['action'] == rows['action'][0], 5.0, 0.0)})
    again = drawn(buffer, 100)
    expected = np.where(
        again['action'] == rows['action'][0],
        5.0,
        np.where(np.isin(again['action'], rows['action']), 0.0, 1.0),
    )
    np.testing.assert_allclose(again['priority'], expected, atol=1e-4)


@pytest.mark.parametrize('nstep', [1, 3])
@pytest.mark.parametrize('type', ['naive', 'advanced', 'elastic'])
def test_a_restored_buffer_continues_with_the_same_bits(type: str, nstep: int) -> None:
    buffer = filled(episode(1, 9), episode(2, 7), type=type, nstep=nstep, size=12)
    buffer.push(episode(3, 6)[:4], 0)
    buffer.sample(4, 0)
    twin = filled(type=type, nstep=nstep, size=12)
    twin.load_state_dict(copy.deepcopy(buffer.state_dict()))
    for each in (buffer, twin):
        each.push(episode(3, 6)[4:], 0)
    for _ in range(3):
        assert_same(buffer.sample(8, 0), twin.sample(8, 0))
    assert_same(Batch.cat([*buffer.batches(3, 4, 0)]), Batch.cat([*twin.batches(3, 4, 0)]))


def test_a_reward_that_depends_on_more_than_goals_is_shown() -> None:
    with pytest.raises(EnvError) as caught:
        filled(episode(1, 4), episode(2, 4).replace(reward=np.array([-1, -1, -0.5, -1], np.float32)))
    assert 'in 1 of 8 steps' in str(caught.value) and '[2.0, 2.0]' in str(caught.value)
    assert (caught.value.got, caught.value.expected) == (-1.0, -0.5)


def test_an_episode_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(EpisodeTooLongError, match='one has 11 env steps'):
        filled(episode(1, 11), size=10)


def test_an_episode_that_never_ends_is_an_error_when_it_cannot_fit_any_more() -> None:
    buffer = filled(episode(1, 4), size=10)
    endless, other = (episode(number, 20).replace(terminated=np.zeros(20, bool)) for number in (2, 3))
    for step in range(10):
        both = Batch.cat([endless[step : step + 1], other[step % 5 : step % 5 + 1]])
        buffer.push(both.replace(env_id=np.array([0, 1]), episode_step=np.array([step, step % 5])), 0)
    last = endless[10:11].replace(env_id=np.array([0]), episode_step=np.array([10]))
    with pytest.raises(EpisodeTooLongError, match='one has 11 env steps and goes on'):
        buffer.push(last, 0)


@pytest.mark.parametrize(
    'options', [{'type': 'sequence'}, {'type': 'episode'}, {'type': 'naive', 'device': 'cuda'}]
)
def test_only_buffers_of_single_steps_in_main_memory_have_it(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match='hindsight'):
        create_buffer({**options, 'hindsight': {'strategy': 'future'}})


def test_clearing_forgets_the_running_episodes() -> None:
    buffer: NaiveReplayBuffer = filled()
    buffer.push(episode(1, 5)[:3], 0)
    buffer.clear()
    buffer.push(episode(2, 2), 0)
    assert buffer.count() == 2
