"""An env that fails is named; then the run ends, or a new env or none takes its place and the episode leaves no trace."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import ScriptedPolicy
from fault_envs import (
    FaultEnv,
    OwnError,
    RandomlyFailing,
    Steady,
    children,
    members,
    wait_until,
)
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe.envs import BaseEnvManager
from rlframe.envs.async_manager import SubprocessEnvManager
from rlframe.envs.faults import checkpoint_seed, restart_seed
from rlframe.errors import EnvCrashedError, EnvStartError, EnvTimeoutError
from rlframe.worker import SampleSerialCollector
from rlframe.worker.collector.rollout import Rollout

SEEDS = [11, 12, 13, 14]
LIMIT, PATIENCE = 1.0, 120.0
"""What a call may take, and what no machine needs to notice that it took longer, in seconds."""
WORDS = {
    'raise_own': 'raised OwnError: the simulator lost its mind',
    'exit_python': 'raised SystemExit: 3',
    'kill': 'ended: killed by SIGKILL; out of memory?',
    'leave': 'ended: exit code 7',
    'sleep': f'did not answer within {LIMIT:g} s',
    'spin': f'did not answer within {LIMIT:g} s',
}


pytestmark = pytest.mark.usefixtures('nothing_is_left')


@pytest.fixture
def make(opened: Any) -> Any:
    """Makes a manager; 'base' holds its envs in this process."""

    def build(kind: str, env_fn: Any, **cfg: Any) -> BaseEnvManager:
        limits = {'worker_num': 2, 'step_timeout': 30.0, 'reset_timeout': 30.0}
        return opened(
            BaseEnvManager(env_fn, cfg) if kind == 'base' else SubprocessEnvManager(env_fn, limits | cfg)
        )

    return build


def failing(fault: str, place: str = 'step', at: int = 2, once: Path | str = '') -> list[Any]:
    return [partial(FaultEnv, i, fault if i == 1 else '', place, at, str(once)) for i in range(4)]


BASE = ('base', 'raise_own', 'step'), ('base', 'exit_python', 'reset')
NAMED = [
    *BASE,
    ('subprocess', 'raise_own', 'reset'),
    *(
        pytest.param('subprocess', *failure, marks=pytest.mark.slow)
        for failure in (('leave', 'reset'), ('kill', 'step'), ('sleep', 'step'))
    ),
]
OUTLIVED = [
    (*BASE[0], 'drop'),
    (*BASE[1], 'restart'),
    ('subprocess', 'leave', 'step', 'restart'),
    ('subprocess', 'kill', 'step', 'drop'),
    pytest.param('subprocess', 'spin', 'reset', 'restart', marks=pytest.mark.slow),
]
each_kind = pytest.mark.parametrize('kind', ['base', 'subprocess'])


def hurry(manager: Any, fault: str, place: str) -> None:
    """Sets the limit so that a test of an env that hangs there is quick; there is time for all else, as a start."""
    if fault in ('sleep', 'spin'):
        manager._cfg[f'{place}_timeout'] = LIMIT


def place_words(place: str) -> list[str]:
    return (
        ['env 1', 'step()', 'episode 1', 'step 2'] if place == 'step' else ['env 1', 'reset()', 'episode 2']
    )


@pytest.mark.parametrize(('kind', 'fault', 'place'), NAMED)
def test_raise_names_the_env_and_leaves_nothing(make: Any, kind: str, fault: Any, place: str) -> None:
    manager = make(kind, failing(fault, place))
    manager.reset(seed=SEEDS)
    hurry(manager, fault, place)
    rollout, start = Rollout(manager, ScriptedPolicy().collect_mode), 0.0
    with raises(EnvCrashedError) as caught:
        for _ in range(6):
            start = time.monotonic()
            rollout.step()
    assert isinstance(caught.value, EnvTimeoutError) == (fault in ('sleep', 'spin'))
    if fault in ('sleep', 'spin'):
        assert LIMIT <= time.monotonic() - start < PATIENCE
        assert f'env.manager.{place}_timeout' in str(caught.value)
    if fault in ('raise_own', 'exit_python'):
        assert 'fault_envs.py' in str(caught.value)
        assert isinstance(caught.value.__cause__, OwnError | SystemExit) or 'Traceback' in str(caught.value)
    assert manager.closed and children() == set()


@pytest.mark.parametrize(('kind', 'fault', 'place', 'on_error'), OUTLIVED)
def test_a_fault_is_outlived_and_its_episode_leaves_no_trace(
    make: Any, tmp_path: Path, kind: str, fault: Any, place: str, on_error: str
) -> None:
    manager = make(kind, failing(fault, place, once=tmp_path / 'once'), on_error=on_error)
    manager.reset(seed=SEEDS)
    hurry(manager, fault, place)
    rollout, rows, void = Rollout(manager, ScriptedPolicy().collect_mode), [], []
    for _ in range(14):
        step = rollout.step()
        void += step.abnormal.tolist()
        rows += [(*step.obs[k], *step.timestep.obs[k], bool(step.done[k])) for k in range(len(step.done))]
    gone = [] if on_error == 'restart' else [1]
    assert manager.alive.tolist() == manager.ready.tolist() == [env for env in range(4) if env not in gone]
    (cause,) = manager._budget.causes
    for word in [*place_words(place), WORDS[fault]]:
        assert word in cause and 'Traceback' not in cause
    # its worker took env 0 with it
    together = kind != 'base' and fault not in ('raise_own', 'exit_python')
    assert sorted(void) == {'step': [0, 1] if together else [1], 'reset': []}[place]
    for row in rows:
        assert row[0] == row[4] and row[1] == row[5] and row[2] + 1 == row[6], 'a row is of one episode'
        assert row[8] == (row[6] == 5), 'an episode ends after 5 steps and never else'
    assert len(rows) + len(void) == 4 * 14 - (14 - 2 if place == 'step' else 14 - 5) * len(gone)
    if on_error == 'restart':
        own = [row for row in rows if row[0] == 1]
        fresh = Steady(1)
        first, _ = fresh.reset(seed=restart_seed(SEEDS[1], 1))
        begun = own[1] if place == 'step' else own[5]
        np.testing.assert_array_equal(begun[:4], first)
    if together:
        again = next(row for row in rows[4:] if row[0] == 0 and row[2] == 0) if place == 'step' else None
        first, _ = Steady(0).reset(seed=restart_seed(SEEDS[0], 1))
        assert again is None or again[3] == first[3]


@each_kind
def test_a_void_row_is_the_last_obs_without_reward_and_says_why(make: Any, kind: str, tmp_path: Path) -> None:
    manager = make(kind, failing('raise_own', once=tmp_path / kind), on_error='restart')
    manager.reset(seed=SEEDS)
    manager.step(np.zeros(4, np.int64), manager.ready)
    last = manager.obs.copy()
    for _ in range(2):  # as long as it was not reset
        step = manager.step(np.zeros(4, np.int64), manager.ready)
        np.testing.assert_array_equal(step.obs[1], last[1])
        assert (step.reward[1], step.terminated[1], step.truncated[1]) == (0, False, False)
        assert step.info[1]['abnormal'] and 'OwnError' in step.info[1]['env_error']
        assert not any(step.info[env].get('abnormal') for env in (0, 2, 3))
    assert step.obs[:, 2].tolist() == [3, 1, 3, 3], 'the others were stepped once each'
    manager.reset(np.array([1]))
    assert manager.step(np.zeros(4, np.int64), manager.ready).obs[:, 2].tolist() == [4, 1, 4, 4]


def test_a_worker_killed_between_steps_is_noticed_and_its_envs_are_replaced(make: Any) -> None:
    manager = make('subprocess', [partial(Steady, i) for i in range(4)], on_error='restart')
    manager.reset(seed=SEEDS)
    rollout = Rollout(manager, ScriptedPolicy().collect_mode)
    rollout.step()
    victim = manager._pool.running[1]
    victim._process.kill()
    assert wait_until(lambda: victim.ended is not None, 5)
    assert rollout.step().abnormal.tolist() == [2, 3]
    assert f'the worker of env 2, 3 (pid {victim.pid}) ended: killed by SIGKILL' in manager._budget.causes[0]
    assert rollout.step().timestep.obs[:, 2].tolist() == [3, 3, 1, 1]


def test_envs_given_up_behind_the_back_of_a_running_episode_give_a_last_void_step(make: Any) -> None:
    manager = make('subprocess', [partial(Steady, i) for i in range(4)], on_error='drop')
    manager.reset(seed=SEEDS)
    manager.step(np.zeros(4, np.int64), manager.ready)
    victim = manager._pool.running[1]
    victim._process.kill()
    assert wait_until(lambda: victim.ended is not None, 5)
    manager.reset(np.array([0]))
    assert manager.alive.tolist() == [0, 1] and manager.ready.tolist() == [0, 1, 2, 3]
    step = Rollout(manager, ScriptedPolicy().collect_mode).step()
    assert step.abnormal.tolist() == [2, 3] and step.timestep.obs[:, 2].tolist() == [1, 2]
    assert manager.ready.tolist() == [0, 1]


def test_when_no_env_is_left_the_run_ends(make: Any) -> None:
    manager = make('base', [partial(RandomlyFailing, i, 1.0) for i in range(2)], on_error='drop')
    manager.reset(seed=[1, 2])
    with raises(EnvCrashedError):
        manager.step(np.zeros(2, np.int64), manager.ready)
    assert manager.closed


@each_kind
def test_a_reset_that_never_succeeds_uses_the_budget_up(make: Any, kind: str) -> None:
    env_fn = [partial(FaultEnv, i, 'raise_own' if i == 1 else '', 'reset', 1) for i in range(3)]
    with raises(EnvStartError):
        make(kind, env_fn).reset(seed=[1, 2, 3])
    with raises(EnvCrashedError) as caught:
        make(kind, env_fn, on_error='restart', max_restarts=2).reset(seed=[1, 2, 3])
    assert caught.value.where == 'env.manager.max_restarts'
    manager = make(kind, env_fn, on_error='drop')
    manager.reset(seed=[1, 2, 3])
    assert manager.ready.tolist() == manager.alive.tolist() == [0, 2]
    assert manager.step(np.zeros(2, np.int64), manager.ready).env_id.tolist() == [0, 2]
    with raises(ValueError):
        manager.step(np.zeros(2, np.int64), np.array([0, 1]))


def test_the_others_of_a_worker_that_dies_in_a_reset_give_a_void_step(make: Any, tmp_path: Path) -> None:
    env_fn = [
        partial(Steady, 0, 9),
        partial(FaultEnv, 1, 'kill', 'reset', 2, str(tmp_path / 'once'), 2),
        partial(Steady, 2, 9),
    ]
    manager = make('subprocess', env_fn, on_error='restart', worker_num=1)
    manager.reset(seed=[1, 2, 3])
    rollout = Rollout(manager, ScriptedPolicy().collect_mode)
    steps = [rollout.step() for _ in range(5)]
    assert [step.abnormal.tolist() for step in steps] == [[], [], [0, 2], [], []]
    assert steps[2].timestep.env_id.tolist() == [1] and steps[2].obs[0, 2] == 0
    assert steps[3].obs[:, 2].tolist() == [0, 1, 0]


def test_a_limit_holds_for_each_env_not_for_all_of_a_worker(make: Any) -> None:
    class Slow(Steady):
        def step(self, action: Any) -> Any:
            time.sleep(0.25)
            return super().step(action)

    manager = make('subprocess', [Slow] * 4, worker_num=1, step_timeout=0.8)  # 1 s in all
    manager.reset()
    manager.step(np.zeros(4, np.int64), manager.ready)


def test_a_constructor_that_hangs_is_a_timeout_of_the_start(make: Any) -> None:
    start = time.monotonic()
    with raises(EnvTimeoutError):
        make('subprocess', failing('spin', 'init'), reset_timeout=LIMIT)
    assert LIMIT <= time.monotonic() - start < PATIENCE and children() == set()


def test_close_does_not_wait_for_an_env_that_hangs(make: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr('rlframe.envs.worker_pool.CLOSE_SECONDS', 0.2)
    manager = make('subprocess', failing('spin', at=2), step_timeout=2 * PATIENCE)
    manager.reset()
    manager.step(np.zeros(4, np.int64), manager.ready)
    pids = children()
    manager._pool.running[0].link.sendall(manager._step_message('l'))
    time.sleep(0.3)
    start = time.monotonic()
    manager.close()
    assert time.monotonic() - start < PATIENCE and not members(pids)


def test_what_an_env_forked_and_started_ends_with_its_worker(make: Any) -> None:
    manager = make('subprocess', failing('fork', at=1), on_error='restart')
    manager.reset()
    manager.step(np.zeros(4, np.int64), manager.ready)
    groups = children()
    assert len(members(groups)) == 4
    manager._pool.running[0]._process.kill()  # what it forked holds its end of the connection
    manager.step(np.zeros(4, np.int64), manager.ready)
    assert wait_until(lambda: len(members(groups)) == 1, 2) and len(manager._budget.causes) == 1
    manager.reset()
    manager.close()
    assert not members(groups)


@pytest.mark.parametrize(('kind', 'on_error', 'steps'), [('base', 'drop', 5), ('subprocess', 'restart', 20)])
def test_restarts_are_part_of_the_state(make: Any, kind: str, on_error: str, steps: int) -> None:
    def run(manager: Any, steps: int) -> list[Any]:
        rollout, rows = Rollout(manager, ScriptedPolicy().collect_mode), []
        for _ in range(steps):
            step = rollout.step()
            rows.append((step.obs.tolist(), step.timestep.env_id.tolist(), step.abnormal.tolist()))
        return rows

    env_fn = [partial(RandomlyFailing, i, 0.08) for i in range(4)]
    manager = make(kind, env_fn, on_error=on_error, max_restarts=100)
    manager.reset(seed=SEEDS)
    run(manager, steps)
    state = manager.state_dict()
    before = len(state['faults']['causes'])
    expected = run(manager, 15)
    assert 2 <= before < len(manager._budget.causes)
    other = make(kind, env_fn, on_error=on_error, max_restarts=100)
    other.reset(seed=[1, 2, 3, 4])
    other.load_state_dict(state)
    assert other.alive.tolist() == [i for i in range(4) if i not in state['dropped']]
    assert run(other, 15) == expected
    assert other._budget.causes == manager._budget.causes


def test_all_managers_outlive_the_same_faults_in_the_same_way_and_no_end_is_invented(make: Any) -> None:
    env_fn = [partial(RandomlyFailing, i, 0.02) for i in range(4)]
    samples = []
    for kind in ('base', 'subprocess'):
        manager = make(kind, env_fn, on_error='restart', max_restarts=1000)
        policy = ScriptedPolicy(nstep=3, discount_factor=1.0)
        collector = SampleSerialCollector({}, manager, policy.collect_mode)
        rows, faults = collector.collect(500), len(manager._budget.causes)
        assert collector.discarded >= faults >= 5
        assert collector.envstep + faults == 500 + collector.carried + collector.discarded
        samples.append((rows, collector.discarded, collector.envstep))
    (one, *counts), (other, *others) = samples
    for name, column in one.items():
        np.testing.assert_array_equal(other[name], column)
    assert counts == others
    np.testing.assert_array_equal(one['terminated'] | one['truncated'], one['next_obs'][:, 2] == 20)
    assert (one['obs'][:, 1] == one['next_obs'][:, 1]).all()


def test_a_block_is_as_much_smaller_as_envs_were_given_up(make: Any, tmp_path: Path) -> None:
    once = str(tmp_path / 'once')
    env_fn = [
        partial(FaultEnv, i, 'raise_own' if i == 1 else '', at=22, once=once, length=2) for i in range(4)
    ]
    policy = ScriptedPolicy(n_sample=64, on_policy=True)
    collector = SampleSerialCollector({}, make('base', env_fn, on_error='drop'), policy.collect_mode)
    sizes = [len(collector.collect()) for _ in range(4)]
    # in the second block env 1 keeps the 4 rows of episodes that ended; its steps 21 and 22 are thrown away
    assert sizes == [64, 48 + 4, 48, 48] and collector.discarded == 2
    counts = np.bincount(collector.collect()['env_id'], minlength=4)
    assert counts.tolist() == [16, 0, 16, 16]


def test_seeds_of_restarts_and_checkpoints_differ_from_each_other() -> None:
    drawn = [
        f(seed, n) for f in (restart_seed, checkpoint_seed) for seed in (0, 1, 2**32 - 1) for n in range(20)
    ]
    assert len(set(drawn)) == 120 and all(0 <= seed < 2**32 for seed in drawn)
    assert restart_seed(None, 3) is checkpoint_seed(None, 3) is None
