"""Envs in worker processes give what envs in this process give, and nothing of them is left behind."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import fault_envs
import gymnasium
import numpy as np
import pytest
from broken_envs import BrokenEnv
from error_texts import raises
from fault_envs import (
    FaultEnv,
    OwnError,
    Steady,
    children,
    members,
)
from quick_workers import forked_workers  # noqa: F401
from runs import HELPERS, ROOT

from rlframe.envs import BaseEnvManager
from rlframe.envs.async_manager import SubprocessEnvManager
from rlframe.envs.env_worker import SharedRows
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.worker_process import HEADER, REPLY, message, parsed
from rlframe.errors import (
    ActionError,
    EnvError,
    EnvStartError,
    IncompatibleError,
    NonFiniteError,
    SerializationError,
)

pytestmark = pytest.mark.usefixtures('nothing_is_left')


@pytest.fixture
def make(opened: Any, forked_workers: None) -> Any:  # noqa: F811
    """Makes a manager of Steady envs, or of others, with quickly made workers."""

    def build(env_fn: Any = 4, **cfg: Any) -> SubprocessEnvManager:
        env_fn = [partial(Steady, i) for i in range(env_fn)] if isinstance(env_fn, int) else env_fn
        return opened(SubprocessEnvManager(env_fn, {'worker_num': 2, **cfg}))

    return build


def history(manager: Any, steps: int, seed: list[int] | None = None) -> list[Any]:
    """Returns everything that so many steps answer; envs of which it says so are left out of a step."""
    rows: list[Any] = []
    if seed is not None:
        manager.reset(seed=seed)
    for k in range(steps):
        acting = manager.ready if k % 3 else manager.ready[k % 2 :: 2].copy()
        step = manager.step(np.full(len(acting), k % 2), acting)
        rows += [column.copy() for column in step[:4]] + [
            [dict(info) for info in step.info],
            step.env_id.copy(),
        ]
        done = step.env_id[step.done]
        if len(done):
            manager.reset(done)
        rows.append(manager.obs.copy())
    return rows


def assert_same(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b


def test_steps_equal_those_of_base_also_when_some_envs_are_left_out(make: Any) -> None:
    env_fn = [partial(Steady, i, 3 + i) for i in range(5)]
    expected = history(BaseEnvManager(env_fn), 40, [1, 2, 3, 4, 5])
    assert_same(history(make(env_fn), 40, [1, 2, 3, 4, 5]), expected)


def test_arrays_outlive_the_envs_which_say_that_they_are_closed_and_can_be_launched_again(make: Any) -> None:
    manager = make()
    expected = history(manager, 9, [1, 2, 3, 4])
    step = manager.step(np.zeros(4, np.int64), manager.ready)
    kept = step.obs.copy()
    manager.close()
    gc.collect()
    np.testing.assert_array_equal(step.obs, kept)
    with raises(ValueError):
        manager.step(np.zeros(4, np.int64), manager.ready)
    assert manager.state_dict()['envs'] == {}
    assert_same(history(manager, 9, [1, 2, 3, 4]), expected)


def test_pictures_and_specs_come_from_the_workers(make: Any) -> None:
    manager = make()
    manager.reset()
    manager.step(np.zeros(4, np.int64), manager.ready)
    assert [int(manager.render(i)[0, 0, 0]) for i in range(4)] == [1, 11, 21, 31]
    factory = GymEnvFactory({'env_id': 'CartPole-v1'})
    manager = SubprocessEnvManager.from_factory(factory, 2, {'worker_num': 1}, 'rgb_array')
    manager.reset()
    assert factory._known['spec'] is manager.spec and factory.spec.max_episode_steps == 500
    assert manager.render(1).shape == (400, 600, 3)
    manager.close()


def test_a_worker_imports_no_torch_and_uses_one_thread_each() -> None:
    class Nosy(Steady):
        def step(self, action: Any) -> Any:
            obs, *rest, _ = super().step(action)
            told = {'torch': 'torch' in sys.modules, 'main': sys.modules['__main__'].__dict__.get('make')}
            return obs, *rest, {**told, 'threads': os.environ['OMP_NUM_THREADS'], 'pid': os.getpid()}

    manager = SubprocessEnvManager([Nosy] * 4, {'worker_num': 2})
    manager.reset()
    infos = manager.step(np.zeros(4, np.int64), manager.ready).info
    manager.close()
    assert [(info['torch'], info['main'], info['threads']) for info in infos] == [(False, None, '1')] * 4
    assert infos[0]['pid'] == infos[1]['pid'] != infos[2]['pid'] and os.getpid() not in [
        i['pid'] for i in infos
    ]


def test_ids_that_this_process_registered_are_known_there() -> None:
    gymnasium.register('OnlyHere-v0', entry_point=lambda: Steady(3), max_episode_steps=2)
    manager = SubprocessEnvManager.from_factory(
        GymEnvFactory({'env_id': 'OnlyHere-v0', 'action_mask': False}), 2
    )
    try:
        assert [row[0, 0] for row in history(manager, 4, [1, 2]) if np.shape(row) == (2, 4)] == [3] * 6
        assert manager.spec.max_episode_steps == 2
    finally:
        manager.close()
        del gymnasium.registry['OnlyHere-v0']


# what cannot work is refused


def test_what_cannot_be_handed_over_is_named_before_a_process_is_started(tmp_path: Path) -> None:
    with open(tmp_path / 'log', 'w') as log:
        cases = [
            partial(Steady, length=log),
            lambda: Steady(log),
            Steady(0, {'a': [1, threading.Lock()]}).reset,
        ]
        for env_fn in cases:
            with raises(SerializationError):
                SubprocessEnvManager([env_fn])
        factory = GymEnvFactory({'env_id': Steady, 'kwargs': {'length': log}})
        with raises(SerializationError):
            SubprocessEnvManager.from_factory(factory, 2)
    assert children() == set()


def test_a_constructor_that_raises_shows_env_type_message_and_traceback(make: Any) -> None:
    env_fn = [partial(FaultEnv, i, 'raise_own' if i == 2 else '', 'init') for i in range(4)]
    with raises(EnvStartError) as caught:
        make(env_fn, on_error='restart')
    with raises(EnvStartError) as caught:
        BaseEnvManager(env_fn)
    assert isinstance(caught.value.__cause__, OwnError)


def test_a_worker_that_cannot_start_is_an_error_of_the_start(monkeypatch: Any) -> None:
    monkeypatch.setattr('rlframe.run.child_process.BOOT', 'raise SystemExit(3)')
    with raises(EnvStartError):
        SubprocessEnvManager([Steady] * 2, {'worker_num': 1})
    monkeypatch.setattr(sys, 'executable', '/no/such/python')
    with raises(EnvStartError):
        SubprocessEnvManager([Steady] * 2)


def test_errors_of_rlframe_keep_their_type_and_end_the_run(make: Any) -> None:
    manager = make([partial(BrokenEnv, 'reward nan', at=3)] * 2, on_error='restart')
    manager.reset()
    with raises(NonFiniteError):
        history(manager, 5)
    assert manager.closed and children() == set()
    with raises(EnvError):
        SubprocessEnvManager.from_factory(GymEnvFactory({'env_id': 'CartPol-v1'}), 2)


def test_envs_of_different_spaces_are_named_across_workers(make: Any) -> None:
    with raises(IncompatibleError):
        make([Steady, partial(gymnasium.make, 'CartPole-v1')])


class TellsALock(Steady):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {'lock': threading.Lock()}


def test_an_info_that_cannot_be_handed_over_is_named(make: Any) -> None:
    manager = make([TellsALock] * 2)
    manager.reset()
    with raises(SerializationError):
        manager.step(np.zeros(2, np.int64), manager.ready)


# nothing is left behind


PARENT = textwrap.dedent(
    """
    import sys, threading
    from functools import partial
    import numpy as np
    import fault_envs
    from rlframe.envs.async_manager import SubprocessEnvManager

    def work():
        env_fn = [partial(fault_envs.FaultEnv, i, sys.argv[1] if i == 1 else '', at=3) for i in range(4)]
        manager = SubprocessEnvManager(env_fn, {'worker_num': 2})
        manager.reset()
        manager.step(np.zeros(4, np.int64), manager.ready)
        manager.step(np.zeros(4, np.int64), manager.ready)
        print('ready', flush=True)
        manager.step(np.zeros(4, np.int64), manager.ready)
        print('forked', flush=True)
        threading.Event().wait()

    if sys.argv[2] == 'thread':
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
    """
)


@pytest.mark.parametrize(
    ('fault', 'where'),
    [
        pytest.param('fork', 'main', id='forked'),
        pytest.param('hold_the_lock', 'thread', marks=pytest.mark.slow),
    ],
)
def test_all_are_gone_soon_after_the_parent_was_killed(fault: str, where: str) -> None:
    path = os.pathsep.join([str(ROOT), str(HELPERS)])
    parent = subprocess.Popen(
        [sys.executable, '-c', PARENT, fault, where],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONPATH': path},
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == 'ready\n'
    if fault == 'fork':
        assert parent.stdout.readline() == 'forked\n'
    time.sleep(0.3)  # the envs hang by now
    groups = children(parent.pid)
    assert len(groups) == 2 and len(members(groups)) == (4 if fault == 'fork' else 2)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert fault_envs.wait_until(lambda: not members(groups), 5), 'processes outlived their parent'


def test_logging_of_close_names_the_env(caplog: Any) -> None:
    class Stubborn(Steady):
        def close(self) -> None:
            raise OwnError('it does not want to')

    with caplog.at_level(logging.WARNING):
        BaseEnvManager([Stubborn]).close()
    assert 'close() of env 0 failed' in caplog.text


def test_another_number_of_actions_than_of_envs_is_refused() -> None:
    manager = BaseEnvManager([Steady] * 4)
    manager.reset()
    with raises(ActionError):
        manager.step(np.zeros(3, np.int64), manager.ready)


# answers that are exactly as declared go into the shared arrays one by one


OBS = np.array([1.5, -2.5, 0.25], np.float32)
FINE = (OBS, 0.5, True, False, {})


@pytest.mark.parametrize(
    'answer',
    [
        None,
        FINE[:4],
        list(FINE),
        (OBS.tolist(), *FINE[1:]),
        (OBS.astype(np.float64), *FINE[1:]),
        (OBS[:1], *FINE[1:]),
        (OBS[:, None], *FINE[1:]),
        (OBS, 1, True, False, {}),
        (OBS, np.ones(1), True, False, {}),
        (OBS, 0.5, True, False, None),
        (OBS, 0.5, 1, False, {}),
        (OBS, 0.5, True, np.bool_(False), {}),
        (OBS, 0.5, True, None, {}),
    ],
)
def test_anything_else_is_left_to_the_checked_way(answer: Any) -> None:
    rows = SharedRows(np.zeros((2, 3), np.float32), np.zeros(2, np.float32), *np.zeros((2, 2), np.bool_))
    assert rows.take([FINE, FINE]) and not rows.take([FINE, answer])


def test_a_message_is_parsed_only_when_it_is_complete() -> None:
    data = message(REPLY, b'body')
    assert parsed(data) == (REPLY, b'body')
    assert parsed(message(REPLY)) == (REPLY, b'')
    for count in (0, HEADER.size - 1, HEADER.size, len(data) - 1):
        assert parsed(data[:count]) is None
