"""Nobody waits for a slow env, and what an env answers, whenever it does, belongs to what it was asked."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import ScriptedPolicy
from fault_envs import FaultEnv, Steady, Uneven, uneven_reward, wait_until
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe.data import Batch
from rlframe.envs import BaseEnvManager
from rlframe.envs.async_manager import AsyncSubprocessEnvManager
from rlframe.errors import EnvTimeoutError
from rlframe.worker import SampleSerialCollector
from rlframe.worker.collector.rollout import Rollout

SEEDS = [11, 12, 13, 14, 15]


pytestmark = pytest.mark.usefixtures('nothing_is_left')


@pytest.fixture
def make(opened: Any) -> Any:
    """Makes a manager of envs."""
    return lambda env_fn, **cfg: opened(AsyncSubprocessEnvManager(env_fn, cfg))


class Choosing(ScriptedPolicy):
    """Its action depends on the obs alone; it refuses to act in no env."""

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        assert len(env_id) > 0
        np.testing.assert_array_equal(obs[:, 0], env_id)
        return super().forward(obs, env_id).replace(action=chosen(obs))


def chosen(obs: Any) -> Any:
    return obs.sum(-1).astype(np.int64) % 2


def assert_paired(rows: Any) -> None:
    """Fails if the columns of some row are of different steps or envs."""
    obs, next_obs = rows['obs'], rows['next_obs']
    np.testing.assert_array_equal(rows['told'], obs)
    np.testing.assert_array_equal(rows['action'], chosen(obs))
    np.testing.assert_array_equal(rows['env_id'], obs[..., 0])
    np.testing.assert_array_equal(next_obs[..., :3], obs[..., :3] + np.array([0, 0, 1], np.float32))
    np.testing.assert_array_equal(rows['reward'], uneven_reward(next_obs, rows['action']))


def per_env(rows: Any, env_num: int) -> list[Any]:
    """Returns next_obs, reward and ends of each env's rows, in order."""
    ends = rows['terminated'] + 2 * rows['truncated']
    table = np.column_stack([rows['next_obs'], rows['reward'], ends])
    return [table[rows['env_id'] == env] for env in range(env_num)]


def assert_steps_of_base(parts: list[Any], env_fn: Any) -> None:
    """Fails unless each env went through the very steps that it takes in this process."""
    collector = SampleSerialCollector({}, BaseEnvManager(env_fn), Choosing().collect_mode)
    longest = max(map(len, parts))
    expected = per_env(collector.collect(longest * len(parts)), len(parts))
    for got, straight in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(got, straight[: len(got)])


@pytest.mark.parametrize('cfg', [{'wait_num': 4, 'wait_timeout': 0.001}, {'worker_num': 2}], ids=str)
def test_each_env_takes_the_steps_that_it_takes_in_this_process(make: Any, cfg: Any) -> None:
    lengths = [3, 1, 4, 2, 6]
    env_fn = [partial(Uneven, i, lengths[i], 0.003) for i in range(5)]
    collector = SampleSerialCollector({}, make(env_fn, **cfg), Choosing().collect_mode)
    parts = [collector.collect(37) for _ in range(3)]
    for rows in parts:
        assert_paired(rows)
    assert collector.carried + 111 == collector.envstep and collector.discarded == 0
    streams = per_env(Batch.cat(parts), 5)
    assert min(map(len, streams)) > 0
    assert_steps_of_base(streams, [partial(Uneven, i, lengths[i]) for i in range(5)])


def gated(tmp_path: Path, what: str, env_num: int = 4, length: int = 5) -> tuple[list[Any], Path]:
    """Returns what makes envs of which env 0 is held up while the file is there."""
    gate = tmp_path / f'gate.{what}'
    return [
        partial(Uneven, i, length, 0.0, str(tmp_path / 'gate') if i == 0 else '') for i in range(env_num)
    ], gate


def test_a_step_or_a_reset_that_does_not_end_holds_up_nobody(make: Any, tmp_path: Path) -> None:
    env_fn, _ = gated(tmp_path, 'step', length=2)
    manager = make(env_fn)
    manager.reset(seed=SEEDS[:4])
    rollout = Rollout(manager, Choosing().collect_mode)
    for what, answered, place in (('step', 0, [0, 1, 0]), ('reset', 1, [0, 2, 0])):
        gate, seen = tmp_path / f'gate.{what}', []
        gate.touch()
        while min(map(seen.count, (1, 2, 3))) < 10 or seen.count(0) < answered:
            seen += rollout.step().timestep.env_id.tolist()
        assert seen.count(0) == answered and 0 not in manager.ready, 'the others went on for episodes'
        gate.unlink()
        while 0 not in (step := rollout.step()).timestep.env_id:
            pass
        row = step.timestep.env_id.tolist().index(0)
        reward = uneven_reward(step.timestep.obs[row], step.output['action'][row])
        assert step.obs[row, :3].tolist() == place and step.timestep.reward[row] == reward
    gate.touch()
    manager.reset(np.arange(4))
    assert 0 not in manager.ready
    gate.unlink()


def test_a_step_waits_for_as_many_as_it_is_told_to_or_until_its_time_is_up(make: Any, tmp_path: Path) -> None:
    env_fn, gate = gated(tmp_path, 'step', 3)
    for cfg in ({'wait_num': 2}, {'wait_num': 3, 'wait_timeout': 1.0}):
        manager = make(env_fn, **cfg)
        manager.reset(seed=SEEDS[:3])
        gate.touch()
        step = manager.step(np.zeros(3, np.int64), manager.ready)
        assert step.env_id.tolist() == [1, 2] == manager.ready.tolist()
        with raises(ValueError):
            manager.step(np.zeros(2, np.int64), np.array([0, 1]))
        gate.unlink()
        waited = manager.step(np.zeros(0, np.int64), manager.ready[:0])
        assert waited.env_id.tolist() == [0] and manager.ready.tolist() == [0, 1, 2]
    assert manager.step(np.zeros(3, np.int64), manager.ready).env_id.tolist() == [0, 1, 2], 'nobody is late'


def test_what_was_answered_before_a_reset_of_all_is_forgotten(make: Any) -> None:
    manager = make([partial(Uneven, i, 9, 0.01) for i in range(4)])
    manager.reset(seed=SEEDS[:4])
    manager._send_steps(np.zeros(4, np.int64), manager.ready)
    assert len(manager.ready) == 0
    manager.reset(seed=SEEDS[:4])
    assert manager.ready.tolist() == [0, 1, 2, 3]
    assert manager.obs[:, 1:3].tolist() == [[2, 0]] * 4
    rollout = Rollout(manager, Choosing().collect_mode)
    rows = [(row[0], row[2]) for _ in range(12) for row in rollout.step().timestep.obs.tolist()]
    for env in range(4):
        steps = [step for number, step in rows if number == env]
        assert steps == list(range(1, len(steps) + 1))


def test_a_run_saved_while_a_step_runs_goes_on_and_a_resumed_one_begins_an_episode_there(make: Any) -> None:
    env_fn = [partial(Uneven, i, 3 + i, 0.1 if i == 0 else 0.002) for i in range(4)]
    manager, other = make(env_fn), make(env_fn, wait_num=4)
    collectors = [SampleSerialCollector({}, env, Choosing().collect_mode) for env in (manager, other)]
    parts = [collectors[0].collect(30)]
    while not (manager.busy[0] and 0 in manager._stepping):
        parts.append(collectors[0].collect(2))
    state = collectors[0].state_dict()
    assert '0' not in state['env']['envs'] and not manager.busy.any(), 'its step was waited for'
    other.step(np.zeros(4, np.int64), other.ready)  # what it does meanwhile is forgotten
    collectors[1].load_state_dict(state)
    carried = collectors[1].carried
    assert other.ready.tolist() == [0, 1, 2, 3] and other.obs[0, 2] == 0
    rest = [[collector.collect(20) for _ in range(3)] for collector in collectors]
    for rows in (*parts, *rest[0], *rest[1]):
        assert_paired(rows)
    assert_steps_of_base(
        per_env(Batch.cat([*parts, *rest[0]]), 4), [partial(Uneven, i, 3 + i) for i in range(4)]
    )
    assert carried + collectors[1].envstep == 60 + collectors[1].carried


# faults


def test_the_others_go_on_while_a_worker_is_killed(make: Any, tmp_path: Path) -> None:
    env_fn, gate = gated(tmp_path, 'step', length=4)
    manager = make(env_fn, on_error='restart')
    manager.reset(seed=SEEDS[:4])
    gate.touch()
    rollout = Rollout(manager, Choosing().collect_mode)
    rollout.step()
    victim = manager._pool.running[0]
    assert wait_until(lambda: manager._pool._watch.env[0] == 0, 5)
    os.kill(victim.pid, signal.SIGKILL)
    gate.unlink()
    steps = []
    while not steps or len(steps[-1].abnormal) == 0:
        steps.append(rollout.step())
    assert steps[-1].abnormal.tolist() == [0] and len(manager._budget.causes) == 1
    first: dict[int, Any] = {}  # of each env, the first row after the fault

    def all_were_seen() -> bool:
        step = rollout.step()
        for row, env_id in enumerate(step.timestep.env_id.tolist()):
            first.setdefault(env_id, step.obs[row, :3].tolist())
        return len(first) == 4

    assert wait_until(all_were_seen, 20)
    assert first[0] == [0, 1, 0], 'a new env at its first step'


def test_an_env_that_hangs_is_found_though_the_others_keep_answering(make: Any) -> None:
    env_fn = [partial(FaultEnv, i, 'sleep' if i == 1 else '', at=2) for i in range(4)]
    manager = make(env_fn, step_timeout=1.0, reset_timeout=60.0)
    manager.reset()
    rollout, steps = Rollout(manager, ScriptedPolicy().collect_mode), 0
    with raises(EnvTimeoutError):
        while True:
            rollout.step()
            steps += 1
    assert steps > 4


def test_an_answer_is_not_late_because_nobody_asked_for_it(make: Any) -> None:
    class Wordy(Steady):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {'words': 'x' * 3_000_000}

    manager = make([Wordy, Wordy], step_timeout=0.2)
    manager.reset()
    manager._send_steps(np.zeros(2, np.int64), manager.ready)
    time.sleep(0.4)
    told = manager.step(np.zeros(0, np.int64), np.zeros(0, np.int64)).info
    told += manager.step(np.zeros(0, np.int64), np.zeros(0, np.int64)).info if len(told) == 1 else []
    assert [len(info['words']) for info in told] == [3_000_000] * 2


def test_a_reset_that_fails_is_tried_again_while_the_others_go_on(make: Any, tmp_path: Path) -> None:
    once = str(tmp_path / 'once')
    env_fn = [partial(FaultEnv, i, 'kill' if i == 0 else '', 'reset', 2, once, 2) for i in range(3)]
    manager = make(env_fn, on_error='restart')
    collector = SampleSerialCollector({}, manager, ScriptedPolicy().collect_mode)
    parts = [collector.collect(50)]
    while sum(int((rows['env_id'] == 0).sum()) for rows in parts) < 5:
        parts.append(collector.collect(50))
    rows = Batch.cat(parts)
    assert len(manager._budget.causes) == 1 and collector.discarded == 0
    own = rows[rows['env_id'] == 0]
    np.testing.assert_array_equal(own['obs'][:, 2], np.arange(len(own)) % 2)
    assert own['obs'][2:4, 1].tolist() == [1, 1], 'the second episode is the first of a new env'
