"""Workers of parallel mode in Ray actors: they work, end when they are asked to, and are seen when they die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fault_envs import wait_until
from ray_runs import is_alive
from transports import ORDERS, serving

from rlframe.backend.ray.launcher import ActorLauncher
from rlframe.config import compile_config
from rlframe.errors import ConfigError, ResourceError
from rlframe.parallel.roles import worker_config
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Envelope, Reply

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]


def config_of(**parallel: Any) -> Any:
    main = {'env': {'env_id': 'CartPole-v1'}, 'policy': {'cuda': False}, 'parallel': parallel}
    main['policy']['other'] = {'commander': {'collector_task_space': 4}}  # type: ignore[index]
    kinds = {'commander': 'solo', 'comm_collector': 'ray', 'comm_learner': 'ray', 'policy': 'dqn'}
    return compile_config(main, {name: {'type': kind} for name, kind in kinds.items()}, seed=0)


class Idle:
    """A coordinator that has nothing to do for anybody, and notes who joins and who leaves."""

    def __init__(self) -> None:
        self.joined: dict[str, m.Join] = {}
        self.left: list[str] = []

    def __call__(self, envelope: Envelope, payload: Any) -> Reply:
        message = envelope.message
        if isinstance(message, m.Join):
            self.joined[message.name] = message
            return Reply(m.Joined(f'{message.name}.1', 0.1))
        if isinstance(message, m.AskTask):
            return Reply(m.Wait(60.0, False, 'nothing to do'))
        if isinstance(message, m.Farewell):
            self.left.append(envelope.sender)
        return Reply(ORDERS)


@contextmanager
def launching(handler: Any, **parallel: Any) -> Iterator[Callable[[str, str], Any]]:
    """Yields what launches a worker by its role and name; all are ended at the end."""
    launched = []
    with serving('ray', handler) as server:
        launcher = ActorLauncher(worker_config(config_of(**parallel), server), server)

        def launch(role: str, name: str) -> Any:
            launched.append(launcher.launch(role, name))
            return launched[-1]

        try:
            yield launch
        finally:
            for worker in launched:
                worker.end(0)
            launcher.close()
            launcher.close()


def test_killed_workers_are_seen_with_the_reason_and_others_say_farewell_or_are_killed() -> None:
    coordinator = Idle()
    with launching(coordinator) as launch:
        names = (('collector', 'collector-0'), ('collector', 'collector-1'), ('learner', 'learner'))
        killed, asked, frozen = (launch(*each) for each in names)
        assert wait_until(lambda: len(coordinator.joined) == 3, 60)
        pids = {name: join.pid for name, join in coordinator.joined.items()}
        os.kill(pids['collector-0'], signal.SIGKILL)
        assert wait_until(lambda: killed.ended is not None, 30)
        assert killed.ended.startswith('ActorDiedError: ') and 'The actor died' in killed.ended, killed.ended
        assert asked.ended is None and frozen.ended is None and coordinator.left == []
        again = launch('collector', 'collector-0')
        assert wait_until(lambda: coordinator.joined['collector-0'].pid != pids['collector-0'], 60)
        assert again.ended is None
        asked.end(30.0)
        asked.end(30.0)
        assert asked.ended == '' and coordinator.left == ['collector-1.1']
        os.kill(pids['learner'], signal.SIGSTOP)
        frozen.end(0.2)
        assert frozen.ended == 'killed, because it did not end within 0.2 s'
        assert wait_until(lambda: not any(map(is_alive, pids.values())), 10)


def test_error_of_a_worker_is_told_in_words() -> None:
    def handler(envelope: Envelope, payload: Any) -> Reply:
        raise ConfigError('another config', remedy='Copy it.')

    with launching(handler) as launch:
        worker = launch('collector', 'collector-0')
        assert wait_until(lambda: worker.ended is not None, 60)
        assert worker.ended.startswith('RequestRefusedError: http://')
        assert worker.ended.endswith('another config. Copy it.')


def test_workers_get_a_cpu_for_each_process_if_all_fit_and_share_the_cores_if_not() -> None:
    with serving('ray', Idle()) as server:
        for collectors, learners, cpus in ((3, 1, 1.0), (4, 1, 0.0), (1, 3, 1.0), (2, 3, 0.0)):
            cfg = config_of(collector_num=collectors)
            cfg.policy.learn.num_learners = learners
            launcher = ActorLauncher(cfg, server)
            found = [launcher._options[role]['num_cpus'] for role in ('collector', 'learner')]
            assert found == [cpus, learners * cpus]
            launcher.close()


def test_resources_that_the_cluster_lacks_are_an_error_with_numbers() -> None:
    with serving('ray', Idle()) as server:
        message = r'parallel\.comm_collector\.num_cpus: actors need .*; free: GPU '
        with pytest.raises(ResourceError, match=message):
            ActorLauncher(config_of(collector_num=2, comm_learner={'num_gpus': 1}), server)
        cfg = config_of(collector_num=1)
        cfg.policy.device, cfg.policy.cuda, cfg.policy.learn.num_learners = 'cuda', None, 2
        with pytest.raises(ResourceError, match=r'1 x \{GPU: 2\} .*; free: GPU 0 of 0'):
            ActorLauncher(cfg, server)
