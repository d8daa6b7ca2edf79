"""Nothing that was stepped is lost, nothing stale is returned, and every column is of its own step."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import (
    EPISODE,
    NUMBER,
    STEP,
    FakeBoard,
    ScriptedPolicy,
    ShuffledEnvManager,
    counted_reward,
    counting_manager,
    frames_of,
)

from rlframe.data import Batch
from rlframe.errors import EpisodeTooLongError, NonFiniteError
from rlframe.worker import InteractionSerialEvaluator, SampleSerialCollector, to_tensor_transitions


def make(
    env_num: int = 3, cfg: Any = None, env: dict[str, Any] | None = None, board: Any = None, **facts: Any
) -> tuple[SampleSerialCollector, ScriptedPolicy, Any]:
    manager, policy = counting_manager(env_num, **(env or {})), ScriptedPolicy(**facts)
    return SampleSerialCollector(cfg or {}, manager, policy.collect_mode, board), policy, manager


def assert_paired(rows: Any) -> None:
    """Fails if the columns of some row are of different steps or envs."""
    obs, next_obs = rows['obs'], rows['next_obs']
    np.testing.assert_array_equal(rows['told'], obs)
    np.testing.assert_array_equal(rows['acted'], obs[..., NUMBER])
    np.testing.assert_array_equal(rows['env_id'], obs[..., NUMBER])
    np.testing.assert_array_equal(next_obs, obs + np.array([0, 0, 1], np.float32))
    np.testing.assert_array_equal(rows['reward'], counted_reward(*np.moveaxis(next_obs, -1, 0)))


def test_frames_stepped_are_returned_or_carried() -> None:
    rng = np.random.default_rng(0)
    for _ in range(12):
        env_num, nstep = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        lengths = [int(n) for n in rng.integers(1, 8, size=3)]
        collector, _, manager = make(
            env_num, None, {'lengths': lengths}, nstep=nstep, discount_factor=0.9, n_sample=3
        )
        returned = 0
        for _ in range(2):
            n_sample = int(rng.integers(1, 12))
            drop_extra = bool(rng.random() < 0.7)
            rows = collector.collect(n_sample, drop_extra=drop_extra)
            assert len(rows) == n_sample if drop_extra else len(rows) >= n_sample
            returned += len(rows)
            assert frames_of(manager) == collector.envstep == returned + collector.carried
            if drop_extra is False:
                assert collector.carried <= env_num * (nstep - 1)


def test_obs_and_next_obs_alias_nothing_of_the_manager() -> None:
    for shuffled in (False, True):
        manager = counting_manager(3, lengths=4)
        manager = ShuffledEnvManager(manager) if shuffled else manager
        collector = SampleSerialCollector({}, manager, ScriptedPolicy().collect_mode)
        taken, copies = [], []
        for _ in range(5):
            taken.append(collector.collect(6))
            copies.append(copy.deepcopy(taken[-1]))
        for batch, frozen in zip(taken, copies, strict=True):
            for name, column in batch.items():
                np.testing.assert_array_equal(column, frozen[name])
            batch['obs'][:] = -1
        assert_paired(collector.collect(9))


@pytest.mark.parametrize('shuffled', [False, True])
def test_on_policy_takes_exactly_t_steps_of_each_env_and_nothing_stale(shuffled: bool) -> None:
    manager, policy = counting_manager(4, lengths=[3, 5]), ScriptedPolicy(on_policy=True, n_sample=20)
    envs: Any = ShuffledEnvManager(manager, 5) if shuffled else manager
    collector = SampleSerialCollector({}, envs, policy.collect_mode)
    for call in range(5):
        rows = collector.collect(train_iter=call)
        assert len(rows) == 20 and collector.carried == 0
        block = policy.blocks[-1]
        assert block['reward'].shape == (5, 4) and 'mask' not in block
        assert (block['collect_iter'] == call).all()
        assert_paired(block)
        np.testing.assert_array_equal(block['env_id'], np.arange(4)[None].repeat(5, 0))
        same_episode = block['obs'][1:, :, EPISODE] == block['obs'][:-1, :, EPISODE]
        np.testing.assert_array_equal(same_episode, ~block['terminated'][:-1])
        at = block['obs'][:, :, EPISODE] * 10 + block['obs'][:, :, STEP]
        assert (np.diff(at, axis=0) > 0).all(), 'in time order'
    assert frames_of(manager) == collector.envstep == 100


def test_on_policy_n_sample_must_divide_and_n_sample_must_be_known() -> None:
    collector, _, _ = make(4, on_policy=True)
    with raises(ValueError):
        collector.collect(10)
    for n_sample in (None, 0, -3):
        with raises(ValueError):
            collector.collect(n_sample)
    with raises(ValueError):
        SampleSerialCollector({}).collect(4)
    with raises(ValueError):
        SampleSerialCollector({}).reset_policy()


def abnormal_at(*places: tuple[int, int, int]) -> dict[str, Any]:
    return {'info': lambda n, e, s, done: {'abnormal': (n, e, s) in places}}


def test_an_abnormal_step_is_dropped_counted_and_its_env_restarted(caplog: Any) -> None:
    nstep = 3
    bad = abnormal_at((1, 0, 4), (0, 2, 1), (2, 2, 1))
    collector, policy, manager = make(3, None, {'lengths': 6} | bad, nstep=nstep, discount_factor=1.0)
    rows = Batch.cat([collector.collect(13) for _ in range(5)])
    assert frames_of(manager) == len(rows) + collector.carried + collector.discarded
    assert collector.discarded == 3 + min(3, nstep - 1)
    assert not ((rows['obs'] == [1, 0, 3]).all(1)).any(), 'the void step is in no row'
    assert [1] in policy.resets and [0, 2] in policy.resets
    assert 'abnormal step of env [1]' in caplog.text
    assert (rows['next_obs'][:, EPISODE] == rows['obs'][:, EPISODE]).all(), 'no window crosses'
    episodes = rows['obs'][rows['obs'][:, NUMBER] == 1][:, EPISODE]
    assert (np.diff(episodes) >= 0).all() and episodes.max() >= 2


def test_an_abnormal_episode_leaves_no_row_of_its_own_in_an_on_policy_block() -> None:
    collector, policy, manager = make(
        3, None, {'lengths': 4} | abnormal_at((1, 1, 3)), on_policy=True, n_sample=30
    )
    assert len(collector.collect()) == 30
    block = policy.blocks[-1]
    assert 'mask' not in block and collector.discarded == 3
    assert_paired(block)
    episodes = block['obs'][:, 1, EPISODE].tolist()
    assert episodes == [0] * 4 + [2] * 4 + [3] * 2, 'whole of the first, nothing of the void one'
    assert block['obs'][:, 0, EPISODE].tolist() == [0] * 4 + [1] * 4 + [2] * 2
    assert frames_of(manager) == 30 + collector.discarded
    assert len(collector.collect()) == 30


def test_marked_rows_say_where_in_their_episode_they_are() -> None:
    bad = abnormal_at((1, 0, 3))
    collector, _, _ = make(
        3, {'mark_episodes': True}, {'lengths': [4, 6]} | bad, nstep=3, discount_factor=1.0
    )
    rows = Batch.cat([collector.collect(n) for n in (7, 20, 13)])
    np.testing.assert_array_equal(rows['env_id'], rows['obs'][:, NUMBER])
    np.testing.assert_array_equal(rows['episode_step'], rows['obs'][:, STEP])
    assert rows['episode_step'].dtype == rows['env_id'].dtype == np.int32
    collector.reset_env()
    rows = collector.collect(30)
    np.testing.assert_array_equal(rows['episode_step'], rows['obs'][:, STEP])


def test_collect_iter_is_that_of_the_call_in_which_a_row_was_stepped() -> None:
    collector, _, _ = make(4)
    first, second = collector.collect(6, train_iter=10), collector.collect(6, train_iter=20)
    assert first['collect_iter'].tolist() == [10] * 6
    assert second['collect_iter'].tolist() == [10] * 2 + [20] * 4
    collector, _, _ = make(1, None, {'lengths': 9}, nstep=3, discount_factor=1.0)
    collector.collect(1, train_iter=1)
    assert collector.collect(3, train_iter=2)['collect_iter'].tolist() == [1, 1, 2]


def test_another_policy_goes_on_where_the_last_one_stopped() -> None:
    collector, _, _ = make(2, None, {'lengths': 50})
    collector.collect(5)
    collector.reset_policy(ScriptedPolicy().collect_mode)
    rows = collector.collect(5)
    assert rows['obs'][:, STEP].tolist() == [2, 3, 3, 4, 4] and (rows['obs'][:, EPISODE] == 0).all()


def test_random_collection_is_logged_only_where_wanted() -> None:
    for record, expected in ((False, False), (True, True)):
        board = FakeBoard()
        collector, _, _ = make(2, {'collect_print_freq': 1}, {'lengths': 2}, board)
        collector.collect(20, train_iter=1, random_collect=True, record_random_collect=record)
        assert ('rollout/ep_rew_mean' in board.tags()) == expected
        assert np.isnan(collector.mean_return()) != expected
        collector.collect(20, train_iter=2)
        assert board.last('rollout/interval_episodes') == 10


def test_records_come_every_so_many_iterations_with_the_episodes_since() -> None:
    board = FakeBoard()
    collector, _, _ = make(
        2,
        {'collect_print_freq': 10},
        {'lengths': 4, 'reward': lambda n, e, s: n, 'info': lambda n, e, s, d: {'is_success': n == 1}},
        board,
    )
    for train_iter in range(25):
        collector.collect(8, train_iter=train_iter)
    steps = [step for tag, _, step in board.scalars if tag == 'rollout/ep_rew_mean']
    assert steps == [88, 168]
    assert board.last('rollout/ep_rew_mean') == 2.0 and board.last('rollout/ep_len_mean') == 4
    assert board.last('rollout/interval_episodes') == 20 and board.last('rollout/success_rate') == 0.5
    assert board.last('rollout/interval_rew_std') == 2.0 and board.last('time/collect_fps') > 0
    assert collector.mean_return() == 2.0


def test_an_env_s_own_episode_return_replaces_the_sum() -> None:
    collector, _, _ = make(
        2,
        None,
        {'lengths': 3, 'info': lambda n, e, s, d: {'eval_episode_return': np.array([5.5])} if d else {}},
    )
    collector.collect(12)
    assert collector.mean_return() == 5.5


def test_to_tensor_transitions_keeps_each_obs_once() -> None:
    rows = [
        {'obs': np.full(2, i, np.float64), 'next_obs': np.full(2, i + 1.0), 'done': False} for i in range(3)
    ]
    shared = to_tensor_transitions(rows)
    assert shared[0]['next_obs'] is shared[1]['obs'] and shared[1]['next_obs'] is shared[2]['obs']
    assert shared[2]['next_obs'].tolist() == [3, 3] and shared[0]['obs'].dtype == torch.float32
    apart = to_tensor_transitions(rows, shallow_copy_next_obs=False)
    assert apart[0]['next_obs'] is not apart[1]['obs'] and apart[0]['next_obs'].tolist() == [1, 1]
    assert isinstance(rows[0]['obs'], np.ndarray) and shared[0]['done'] is False
    batch = to_tensor_transitions(Batch.from_rows(rows))
    assert isinstance(batch, Batch) and batch['obs'].dtype == torch.float32


def test_envs_whose_state_cannot_be_had_begin_new_episodes_and_no_row_is_mixed(caplog: Any) -> None:
    nstep = 3

    def build() -> SampleSerialCollector:
        collector, _, manager = make(3, None, {'lengths': 100}, nstep=nstep, discount_factor=1.0)
        for env in manager.envs.values():
            env.unwrapped.handle = iter(())
        return collector

    collector = build()
    collector.collect(10)
    collector.settle()
    other = build()
    other.load_state_dict(collector.state_dict())
    assert 'cannot be saved' in caplog.text and 'env 0, 1, 2: CountingEnv.handle' in caplog.text
    assert collector.discarded == other.discarded == 3 * (nstep - 1)
    assert other.carried == len(other._recorder) == 2
    new = other.collect(11)[2:]
    np.testing.assert_array_equal(new['obs'][:3, STEP], 0)
    np.testing.assert_array_equal(new['obs'][:, EPISODE], new['next_obs'][:, EPISODE])
    span = new['next_obs'][:, STEP] - new['obs'][:, STEP]
    assert ((span >= 1) & (span <= nstep)).all()


def test_endless_episode_is_an_error_that_names_the_env() -> None:
    lengths = [lambda episode: 3, lambda episode: 10**9]
    collector = make(2, {'max_episode_len': 20}, {'lengths': lengths})[0]
    with raises(EpisodeTooLongError):
        for _ in range(20):
            collector.collect(4)


# the level that each row was stepped in, as a column


@pytest.mark.parametrize('form', [list, lambda seeds: dict(reversed(list(enumerate(seeds))))])
def test_level_seeds_become_a_column_from_any_call_on(form: Any) -> None:
    facts: Any = {'nstep': 3, 'discount_factor': 0.9}
    collector, _, _ = make(3, None, {'lengths': [5, 4]}, **facts)
    given = {0: None, 1: [70, 80, 90], 2: None, 3: [170, 180, 190], 4: None}
    wanted = {0: [-1] * 3, 1: [70, 80, 90], 2: [-1] * 3, 3: [170, 180, 190], 4: [-1] * 3}
    met: set[tuple[int, int]] = set()
    for train_iter, seeds in given.items():
        if train_iter == 3:  # where it was saved, it goes on
            twin, _, _ = make(3, None, {'lengths': [5, 4]}, **facts)
            twin.load_state_dict(collector.state_dict())
            collector = twin
        level_seeds = None if seeds is None else form(seeds)
        rows = collector.collect(7, train_iter, level_seeds=level_seeds)
        if train_iter == 0:
            assert 'seed' not in rows
            continue
        env, stepped = rows['obs'][..., NUMBER].astype(int), rows['collect_iter']
        expected = [wanted[int(i)][e] for i, e in zip(stepped, env, strict=True)]
        assert rows['seed'].tolist() == expected
        met |= {(train_iter, int(i)) for i in stepped}
    assert any(called > stepped for called, stepped in met), 'rows were carried over'
    collector.reset()
    assert 'seed' not in collector.collect(3)


@pytest.mark.parametrize('seeds', [{0: 1, 1: 2, 5: 3}, [1, 2]], ids=str)
def test_level_seeds_that_lack_an_env_are_refused_before_anything_is_stepped(seeds: Any) -> None:
    collector, _, manager = make(3)
    with raises(ValueError):
        collector.collect(6, level_seeds=seeds)
    assert frames_of(manager) == 0


# a NaN that a policy hands out is noticed before an env is stepped; what masks actions is none

NAN, INF = float('nan'), float('inf')


class Telling(ScriptedPolicy):
    """Adds a column to its output from the third step on."""

    def __init__(self, name: str, column: Any, **facts: Any) -> None:
        super().__init__(**facts)
        self._name, self._column = name, column

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        output = dict(super().forward(obs, env_id).items())
        if len(self.given_settings) > 2:
            output[self._name] = np.array(self._column, np.float32)
        return Batch(output)


@pytest.mark.parametrize(
    ('name', 'column'),
    [('action', [[0.0, 1.0], [-INF, 1.0]]), ('log_prob', [0.0, NAN]), ('logit', [[0.0, NAN], [0.0, -INF]])],
)
def test_nan_of_a_policy_is_an_error_that_names_env_and_column(name: str, column: Any) -> None:
    for evaluate in (False, True):
        policy, manager = Telling(name, column, n_sample=2), counting_manager(2)
        with raises(NonFiniteError):
            if evaluate:
                InteractionSerialEvaluator({'n_episode': 2}, manager, policy.eval_mode).eval()
            collector = SampleSerialCollector({}, manager, policy.collect_mode)
            for _ in range(3):
                collector.collect(4)
        assert frames_of(manager) == 4, 'two steps of two envs'


def test_masked_actions_and_large_numbers_are_no_error() -> None:
    for column in ([[0.0, -INF], [-INF, INF]], [[3e38, 3e38], [-3e38, 0.0]]):
        policy = Telling('logit', column)
        collector = SampleSerialCollector({}, counting_manager(2), policy.collect_mode)
        assert len(collector.collect(20)) == 20
