"""Workers of parallel mode in Ray actors: they work, end when they are asked to, and are seen when they die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
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
from rlframe.remote.supervisor import Limits, Supervisor

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


LEARNER, FIRST, SECOND = (
    ('learner', 'learner'),
    ('collector', 'collector-0'),
    ('collector', 'collector-1'),
)


@contextmanager
def launching(handler: Any, *seats: tuple[str, str], **parallel: Any) -> Iterator[Supervisor]:
    """Yields what supervises workers, which have been asked to run; all are ended at the end."""
    with serving('ray', handler) as server:
        launcher = ActorLauncher(worker_config(config_of(**parallel), server), server, seats)
        supervisor = Supervisor(launcher, launcher.maker(), len(seats), Limits(restarts=5))
        try:
            supervisor.begin()
            for rank in supervisor.ranks:
                supervisor.ask(rank, 'run')
            yield supervisor
        finally:
            supervisor.close()
            supervisor.close()


def test_killed_workers_are_seen_with_the_reason_and_others_say_farewell_or_are_killed() -> None:
    coordinator = Idle()
    with launching(coordinator, FIRST, SECOND, LEARNER) as supervisor:
        assert wait_until(lambda: len(coordinator.joined) == 3, 60)
        pids = {name: join.pid for name, join in coordinator.joined.items()}
        os.kill(pids['collector-0'], signal.SIGKILL)
        call = supervisor.wait()
        assert call.rank == 0 and call.lost.startswith('in run: ActorDiedError: '), call.lost
        assert 'The actor died' in call.lost and coordinator.left == []
        supervisor.ask(0, 'run')
        assert wait_until(
            lambda: (
                supervisor.poll() is None and coordinator.joined['collector-0'].pid != pids['collector-0']
            ),
            60,
        )
        supervisor.remove(1)
        assert coordinator.left == ['collector-1.1']
        os.kill(pids['learner'], signal.SIGSTOP)
        supervisor.lose(2, 'it is frozen')
        assert wait_until(lambda: not any(map(is_alive, pids.values())), 10)


def test_error_of_a_worker_is_told_in_words() -> None:
    def handler(envelope: Envelope, payload: Any) -> Reply:
        raise ConfigError('another config', remedy='Copy it.')

    with launching(handler, FIRST) as supervisor:
        call = supervisor.wait()
        assert call.value.startswith('RequestRefusedError: http://')
        assert call.value.endswith('another config. Copy it.')


def test_workers_get_a_cpu_for_each_process_if_all_fit_and_share_the_cores_if_not() -> None:
    with serving('ray', Idle()) as server:
        for collectors, learners, cpus in ((3, 1, 1.0), (4, 1, 0.0), (1, 3, 1.0), (2, 3, 0.0)):
            cfg = config_of(collector_num=collectors)
            cfg.policy.learn.num_learners = learners
            launcher = ActorLauncher(cfg, server, [LEARNER, *[FIRST] * collectors])
            launcher.reserve(range(1 + collectors))
            assert [launcher._options[rank]['num_cpus'] for rank in (1, 0)] == [cpus, learners * cpus]
            launcher.close()


def test_resources_that_the_cluster_lacks_are_an_error_with_numbers() -> None:
    with serving('ray', Idle()) as server:
        message = r'parallel\.comm_collector\.num_cpus: actors need .*; free: GPU '
        cfg = config_of(collector_num=2, comm_learner={'num_gpus': 1})
        with pytest.raises(ResourceError, match=message):
            ActorLauncher(cfg, server, [LEARNER, FIRST, SECOND]).reserve(range(3))
        cfg = config_of(collector_num=1)
        cfg.policy.device, cfg.policy.cuda, cfg.policy.learn.num_learners = 'cuda', None, 2
        with pytest.raises(ResourceError, match=r'1 x \{GPU: 2\} .*; free: GPU 0 of 0'):
            ActorLauncher(cfg, server, [LEARNER, FIRST]).reserve(range(2))
