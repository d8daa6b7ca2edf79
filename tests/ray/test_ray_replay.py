"""Replay in Ray actors: shards are sampled as one buffer, and a lost one costs its items and nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffer_helpers import assert_same
from fault_envs import wait_until
from goal_rows import Equal, episode
from ray_runs import RAY, is_alive, train_to
from runs import CASES, ROOT, assert_same_end, differences, every, killed_and_straight

from rlframe.backend.ray.options import BUFFER, SHARD_OPTIONS
from rlframe.backend.ray.replay import ShardedReplayBuffer, shards_of
from rlframe.config import compile_config
from rlframe.config.reader import read_config
from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError, CheckpointMismatchError, NonFiniteError, WorkerLostError
from rlframe.pipeline import SerialPipeline
from rlframe.registry import BUFFER_REGISTRY
from rlframe.utils.field import ResolvedConfig, defaults_of
from rlframe.worker.replay_buffer import IBuffer

pytestmark = pytest.mark.ray
SHARDS = ('replay_buffer.backend=ray', 'replay_buffer.num_shards=2')
Make = Callable[..., ShardedReplayBuffer]


def options_of(kind: str, size: int, **given: Any) -> ResolvedConfig:
    """Returns the complete options of a buffer in shards."""
    cls = BUFFER_REGISTRY.get(kind)
    own = cls.resolve_config(
        {'replay_buffer_size': size} | {k: v for k, v in given.items() if k not in SHARD_OPTIONS}
    )
    shards = defaults_of(SHARD_OPTIONS) | {k: v for k, v in given.items() if k in SHARD_OPTIONS}
    return ResolvedConfig({'type': kind, 'import_names': None, 'backend': 'ray', **shards, **own})


@pytest.fixture
def sharded(ray_of_tests: Any) -> Iterator[Make]:
    """Creates buffers in shards, which end with the test."""
    made: list[Any] = []

    def make(
        num_shards: int, size: int = 400, kind: str = 'advanced', goals: Any = None, **given: Any
    ) -> ShardedReplayBuffer:
        section = options_of(kind, size, num_shards=num_shards, **{'max_actor_restarts': 20, **given})
        made.append(shards_of(section, goals))
        return ShardedReplayBuffer(section, made[-1], seed=7)

    yield make
    for pool in made:
        pool.close()


def local(size: int = 400, kind: str = 'advanced', **given: Any) -> IBuffer:
    return BUFFER_REGISTRY.build({'type': kind}, {'replay_buffer_size': size, **given}, seed=7)


def rows(first: int, count: int, **more: Any) -> Batch:
    return Batch({'number': np.arange(first, first + count), **more})


def fill(buffer: IBuffer, count: int = 300) -> None:
    """Pushes numbered rows with known priorities, in pushes of different sizes."""
    first = 0
    for size in (1, 7, 64, 90, 200, 500):
        size = min(size, count - first)
        number = np.arange(first, first + size)
        buffer.push(rows(first, size, priority=1.0 + number % 11), first)
        first += size


def pid_of(buffer: ShardedReplayBuffer, rank: int) -> int:
    pid: int = buffer._pool.slots[rank].facts
    return pid


def kill(buffer: ShardedReplayBuffer, rank: int, how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid_of(buffer, rank), how)


def columns(batch: Any) -> dict[str, list[float]]:
    return {name: np.asarray(column).tolist() for name, column in batch.items()}


# one buffer


def test_one_shard_returns_the_bits_of_the_buffer_in_this_process(sharded: Make) -> None:
    remote, here = sharded(1, prefetch=0), local()
    for turn in range(5):
        for buffer in (remote, here):
            buffer.push(rows(turn * 90, 90), turn)
        for ours, theirs in zip(remote.batches(3, 32, turn), here.batches(3, 32, turn), strict=True):
            assert columns(ours) == columns(theirs)
            told = {name: theirs[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
            for buffer in (remote, here):
                buffer.update({**told, 'priority': 0.1 + theirs['number'] % 13})
    assert remote.count() == here.count() == 400


@pytest.mark.parametrize('normalization', ['buffer', 'batch'])
def test_shards_are_drawn_from_as_often_as_one_buffer_and_with_its_weights(
    sharded: Make, normalization: str
) -> None:
    from scipy import stats

    given: dict[str, Any] = {'is_normalization': normalization, 'anneal_step': 0}
    remote, here = sharded(3, **given), local(**given)
    for buffer in (remote, here):
        fill(buffer)
    count, weight = np.zeros(300), {}
    for batch in remote.batches(150, 200, 0):
        number, scale = batch['number'], batch['IS'][batch['priority'].argmin()]
        count += np.bincount(number, minlength=300)
        weight |= dict(zip(number.tolist(), (batch['IS'] / scale).tolist(), strict=True))
        assert batch['IS'].max() == pytest.approx(1.0, abs=1e-6)
    expected = (1.0 + np.arange(300) % 11 + 1e-5) ** 0.6
    assert stats.chisquare(count, expected / expected.sum() * count.sum()).pvalue > 0.01
    own = next(here.batches(1, 300, 0))
    exact = dict(zip(own['number'].tolist(), (own['IS'] / own['IS'].max()).tolist(), strict=True))
    assert len(exact.keys() & weight.keys()) > 100
    assert all(abs(exact[number] - weight[number]) < 1e-6 for number in exact.keys() & weight.keys())


def test_priorities_reach_the_shard_that_has_the_item(sharded: Make) -> None:
    buffer = sharded(3, prefetch=0, alpha=1.0)
    fill(buffer)
    for batch in buffer.batches(30, 100, 0):
        buffer.update({**{name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')},
                       'priority': np.where(batch['number'] == 5, 1e6, 1e-9)})  # fmt: skip
    batch = next(buffer.batches(1, 100, 0))
    assert (batch['number'] == 5).mean() > 0.95
    buffer.push(rows(300, 1), 300)
    assert 300 in next(buffer.batches(1, 100, 0))['number']  # it has the largest priority reported
    with pytest.raises(NonFiniteError):
        buffer.update({'replay_unique_id': [0], 'replay_buffer_idx': [0], 'priority': [np.nan]})


def test_shards_overwrite_their_oldest_items_and_hold_as_many_as_one_buffer(sharded: Make) -> None:
    buffer = sharded(3, size=100)
    for first in range(0, 960, 32):
        buffer.push(rows(first, 32), first)
        assert buffer.pushed == buffer.count() + buffer.overwritten + buffer.lost
    assert (buffer.count(), buffer.replay_buffer_size, buffer.overwritten) == (100, 100, 860)
    drawn = np.concatenate([batch['number'] for batch in buffer.batches(20, 100, 0)])
    assert drawn.min() >= 960 - 100 - 3 * 64  # within a stripe of each shard
    buffer.clear()
    assert buffer.count() == 0
    with pytest.raises(BufferUnderflowError):
        buffer.batches(1, 1, 0)


def test_episodes_that_are_pushed_together_go_to_different_shards(sharded: Make) -> None:
    buffer = sharded(2, kind='sequence', priority=True)
    for _ in range(2):  # of a length at which the shard after the next one is that again
        done = np.arange(64) == 63
        buffer.push([rows(0, 64, terminated=done, truncated=~done & done) for _ in range(2)], 0)
    assert [len(shard) for shard in buffer.shards] == [128, 128]


def test_goals_of_a_shard_are_those_of_one_buffer_and_of_the_row_s_episode(sharded: Make) -> None:
    given: dict[str, Any] = {'hindsight': {'strategy': 'future', 'nstep': 3}, 'prefetch': 0}
    one, two = (sharded(count, goals=Equal(), **given) for count in (1, 2))
    del given['prefetch']
    here = local(**given)
    here.hindsight.goals = Equal()  # type: ignore[attr-defined]
    for number in range(6):
        whole = episode(number, 9 + number, env=number % 2)
        for buffer in (one, two, here):
            buffer.push(whole[:5], 0)
            buffer.push(whole[5:], 0)
    assert one.count() == two.count() == here.count() == 69
    assert [len(shard) for shard in two.shards] == [33, 36]
    for ours, theirs in zip(one.batches(4, 32, 0), here.batches(4, 32, 0), strict=True):
        assert_same(ours, theirs)
    for batch in two.batches(4, 32, 0):
        goal = batch['obs']['desired_goal']
        is_new = goal[:, 0] >= 0
        assert 0.6 < is_new.mean() < 0.95
        assert (goal[is_new, 0] == batch['next_obs']['achieved_goal'][is_new, 0]).all()


def test_restored_shards_know_the_running_episodes(sharded: Make) -> None:
    given: dict[str, Any] = {'hindsight': {'strategy': 'final'}, 'goals': Equal()}
    first, second = sharded(2, **given), sharded(2, **given)
    first.push(Batch.cat([episode(1, 9), episode(2, 7), episode(3, 8)[:4]]), 0)
    second.load_state_dict(first.state_dict())
    for buffer in (first, second):
        buffer.push(episode(3, 8)[4:], 0)
    assert second.count() == 24
    for ours, theirs in zip(first.batches(4, 16, 0), second.batches(4, 16, 0), strict=True):
        assert_same(ours, theirs)
    assert first.pushed == first.count() + first.overwritten + first.lost


def test_batches_drawn_ahead_do_not_depend_on_the_speed_of_shards(sharded: Make) -> None:
    seen = []
    for _ in range(2):
        buffer = sharded(2, prefetch=3)
        for turn in range(4):
            buffer.push(rows(turn * 100, 100), turn)
            for batch in buffer.batches(7, 32, turn):
                seen.append(columns(batch))
                ids = {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
                buffer.update({**ids, 'priority': 0.1 + batch['number'] % 13})
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]


def test_restored_shards_go_on_with_the_same_batches(sharded: Make) -> None:
    first, second, other = sharded(2), sharded(2), sharded(3)
    fill(first)
    list(first.batches(3, 32, 0))
    second.load_state_dict(first.state_dict())
    for ours, theirs in zip(first.batches(4, 32, 0), second.batches(4, 32, 0), strict=True):
        assert columns(ours) == columns(theirs)
    assert second.count() == first.count() == 300
    for state in (first.state_dict(), local().state_dict()):
        with pytest.raises(CheckpointMismatchError, match='num_shards'):
            other.load_state_dict(state)


# losses


@pytest.mark.parametrize('how', [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_lost_shard_costs_its_items_and_is_replaced_by_an_empty_one(
    sharded: Make, how: signal.Signals
) -> None:
    buffer = sharded(2, shard_timeout=120.0 if how == signal.SIGKILL else 20.0)
    fill(buffer)
    held = [len(shard) for shard in buffer.shards]
    batches = buffer.batches(40, 64, 0)
    drawn = [next(batches)]
    kill(buffer, 1, how)
    for batch in batches:
        drawn.append(batch)
        assert len(batch) == 64
        ids = {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
        buffer.update({**ids, 'priority': np.ones(64)})
    assert len(drawn) == 40
    assert (buffer.lost, buffer.count(), buffer.pushed) == (held[1], held[0], 300)
    assert buffer.metrics()['buffer/lost'] == held[1]
    old = drawn[0]
    while 1 not in buffer._pool.ready:
        buffer._pool.look()
    assert buffer.metrics()['buffer/shards'] == 2
    buffer.push(rows(300, 200), 300)
    assert len(buffer.shards[1]) > 0
    ids = {name: old[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
    buffer.update({**ids, 'priority': np.full(64, 1e9)})  # of items that are gone, too: these are skipped
    batch = next(buffer.batches(1, 64, 0))
    assert not (batch['priority'][batch['number'] >= 300] > 1e8).any()
    assert buffer.pushed == buffer.count() + buffer.overwritten + buffer.lost


def test_all_shards_may_be_lost_in_the_middle_of_a_round(sharded: Make) -> None:
    buffer = sharded(2)
    fill(buffer)
    batches = buffer.batches(40, 64, 0)
    next(batches)
    for rank in (0, 1):
        kill(buffer, rank)
    assert len(list(batches)) < 39
    assert (buffer.lost, buffer.count()) == (300, 0)
    buffer.push(rows(0, 300), 0)  # waits for a shard
    assert len(next(buffer.batches(1, 64, 0))) == 64


def test_shards_that_die_at_odd_moments_lose_nothing_else(sharded: Make) -> None:
    buffer, rng, first = sharded(3, max_actor_restarts=100), np.random.default_rng(0), 0
    for turn in range(60):
        if turn % 12 == 5 and (ready := buffer._pool.ready):
            kill(buffer, int(rng.choice(ready)))
        buffer.push(rows(first, 50), first)
        first += 50
        if buffer.count() >= 32:
            for batch in buffer.batches(3, 32, 0):
                assert len(batch) == 32
                assert (batch['number'] < first).all()
                ids = {name: batch[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
                buffer.update({**ids, 'priority': 0.1 + batch['number'] % 13})
        assert buffer.pushed == first == buffer.count() + buffer.overwritten + buffer.lost
    assert buffer.lost > 0
    buffer._read()
    for rank in buffer._pool.ready:
        state = buffer._pool.ask_all('state', {rank: ()})[rank]['storage']
        assert (state['first'], state['stop']) == (buffer.shards[rank].first, buffer.shards[rank].stop)


def test_an_error_of_a_shard_is_that_of_the_buffer_and_leaves_the_shards_in_use(sharded: Make) -> None:
    buffer = sharded(2)
    fill(buffer)
    buffer.push(Batch({'other': np.zeros(3)}), 300)
    buffer.push(rows(303, 100), 303)
    with pytest.raises(ValueError, match=r'shard of the replay buffer \d \(Ray actor\): .*number'):
        next(buffer.batches(1, 64, 0))
    assert len(buffer.state_dict()['shards']) == 2
    assert len(next(buffer.batches(1, 64, 0))) == 64


def test_too_many_lost_shards_end_the_run(sharded: Make) -> None:
    buffer = sharded(1, max_actor_restarts=0)
    fill(buffer)
    buffer._read()
    kill(buffer, 0)
    with pytest.raises(WorkerLostError, match=f'{BUFFER}.max_actor_restarts'):
        list(buffer.batches(2, 64, 0))
    assert buffer.state_dict() == {}


# runs


@pytest.mark.usefixtures('ray_of_tests')
@pytest.mark.parametrize('case', ['dqn advanced', 'goals', 'r2d2'])
def test_a_run_with_one_shard_ends_with_the_bits_of_one_without_ray(case: str, tmp_path: Path) -> None:
    words = (*MORE[case], 'evaluator.eval_freq=40')
    known = case if case in CASES else 'dqn advanced'
    here = train_to(tmp_path / 'local', 120, known, *words)
    there = train_to(
        tmp_path / 'ray', 120, known, *words, 'replay_buffer.backend=ray', 'replay_buffer.prefetch=0'
    )
    for end in (here, there):
        end.pop('replay_buffer')
        for record in (*end['records'], end['hooks']['metrics']):
            for name in [name for name in record if name.startswith('buffer')]:
                del record[name]
    assert len(here['records']) > 3
    assert differences(here, there) == []


MORE = {
    'dqn advanced': (
        'policy.random_collect_size=30',
        'policy.normalize_obs=true',
        'policy.first_priority=error',
    ),
    'goals': (
        *('env.env_id=rlframe/BitFlip-v0', 'env.kwargs={"n_bits": 4}', 'policy.random_collect_size=30'),
        *('collector.mark_episodes=true', 'replay_buffer.hindsight.strategy=episode'),
        'policy.first_priority=error',
    ),
    'r2d2': (
        'policy.priority=true',
        'policy.priority_IS_weight=true',
        'replay_buffer.priority=true',
        'policy.first_priority=error',
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures('copies')
@pytest.mark.parametrize('case', ['dqn advanced', 'goals', 'r2d2'])
def test_killed_and_resumed_run_with_shards_ends_with_the_same_bits(
    case: str, ray_of_tests: Any, tmp_path: Path
) -> None:
    init = f"ray_init_config={{'address': '{ray_of_tests.get_runtime_context().gcs_address}'}}"
    words = (
        *CASES[case if case in CASES else 'dqn advanced'],
        *MORE[case],
        *RAY,
        *SHARDS,
        'collector.num_collectors=2',
        f'collector.{init}',
        f'replay_buffer.{init}',
    )
    assert_same_end(*killed_and_straight(tmp_path, *words, '--train-iter', '300', every(51)))


SOLVED = {
    'cartpole_apex': (
        'env.collector_env_num=2',
        'policy.collect.n_sample=32',
        'policy.learn.update_per_collect=20',
    ),
    'cartpole_novel_r2d2': (
        *('env.env_id=CartPole-v1', 'env.collector_env_num=4', 'policy.first_priority=error', *RAY, *SHARDS),
        *(
            'policy.collect.n_sample=64',
            'policy.learn.update_per_collect=16',
            'policy.learn.target_update_freq=50',
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', SOLVED)
def test_a_run_is_solved_though_a_shard_is_killed_and_leaves_nothing_behind(
    name: str, ray_of_tests: Any, tmp_path: Path
) -> None:
    words = ['env.stop_value=195', 'env.evaluator_env_num=5', 'env.n_evaluator_episode=20']
    words += ['evaluator.eval_freq=200', 'max_env_step=20000', 'collector.num_collectors=2', *SOLVED[name]]
    cfg = compile_config(*read_config(str(ROOT / f'configs/{name}.py')), overrides=words)
    pids: list[int] = []
    with SerialPipeline(cfg, tmp_path) as pipeline:
        buffer: Any = pipeline.replay_buffer

        def after_step(_: Any) -> bool:
            pipeline.evaluator.stop_value = 195 if pids else 501  # not solved before
            if not pids and buffer.count() > 300:
                pids.extend(pid_of(buffer, rank) for rank in (0, 1))
                kill(buffer, 0)
            return False

        pipeline.run(after_step)
        assert pipeline.solved
        assert buffer.lost > 0
        assert buffer.pushed == buffer.count() + buffer.overwritten + buffer.lost
        pids += [pid_of(buffer, rank) for rank in buffer._pool.ready]
    assert wait_until(lambda: not any(map(is_alive, pids)), 30)
