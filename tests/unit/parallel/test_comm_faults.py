"""Lost, repeated and late messages: data arrive once and in order, and every row is accounted for."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from parallel_parts import PATIENCE, ScriptedCoordinator, compiled, task_of, wait_until, weights_of

from rlframe.errors import CoordinatorLostError, RequestRefusedError
from rlframe.parallel import comm_worker
from rlframe.parallel.comm import NaiveCollector
from rlframe.parallel.comm_collector import TransportCollector
from rlframe.parallel.comm_worker import FIRST_SECONDS
from rlframe.parallel.coordinator.assembly import TrainingData
from rlframe.parallel.coordinator.base_parallel_commander import BaseParallelCommander
from rlframe.parallel.coordinator.coordinator import Coordinator
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.roles import collector_maker
from rlframe.parallel.transport.answering import InProcessServer, InProcessTransport
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.parallel.transport.http import HTTPTransport
from rlframe.parallel.transport.messages import AskTask, Message, Task
from rlframe.worker import create_buffer

DQN = ('cartpole_dqn', 'policy.collect.n_sample=6')


class SteadyCommander(BaseParallelCommander):
    """Lets collectors collect and learners learn, and never evaluates."""

    def _next_collector_job(self, situation: Any) -> Task | None:
        job = Task(self._name_task('collect'), 'collect', ['test'], [True], 'test', parts=1)
        return None if situation.spent else job

    def _next_learner_job(self, situation: Any) -> Task | None:
        job = Task(self._name_task('learn'), 'learn', ['test'], [True], 'test')
        return None if situation.is_over else job


def test_close_ends_within_its_deadline_even_if_an_env_hangs() -> None:
    cfg = compiled(*DQN)
    coordinator = ScriptedCoordinator([task_of(parts=0)], {0: weights_of(cfg, 1)})
    hang, hangs = threading.Event(), threading.Event()
    make = collector_maker(cfg)

    def hanging(rank: int, incarnation: int) -> Any:
        parts = make(rank, incarnation)
        step = parts.env.step

        def hung(*given: Any) -> Any:
            hangs.set()
            hang.wait()
            return step(*given)

        parts.env.step = hung
        return parts

    collector = ZerglingParallelCollector(None, hanging)
    comm = TransportCollector(
        {'close_timeout': 0.4}, collector=collector, transport=coordinator.server.connect(), name='c'
    )
    comm.start()
    assert hangs.wait(PATIENCE)
    begin = time.monotonic()
    comm.close()
    assert time.monotonic() - begin < PATIENCE / 2
    hang.set()
    assert comm.wait(PATIENCE)
    comm.close()


class Silence(InProcessTransport):
    """Reaches nobody."""

    attempts = 0

    def carry(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        self.attempts += 1
        raise ConnectionError('nobody is there')


@pytest.mark.parametrize('is_early', [False, True])
def test_worker_that_is_stopped_does_not_wait_for_a_coordinator_that_is_gone(
    is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert comm_worker.STOP_SECONDS <= 3, 'with two seconds to end the process, the 5 s of docs/parallel.md'
    monkeypatch.setattr(comm_worker, 'STOP_SECONDS', 0.1)
    transport = Silence({}, InProcessServer())
    comm = TransportCollector({'timeout': 1000.0}, transport=transport, name='c')
    if is_early:
        comm.stop()
    comm.start()
    wait_until(lambda: transport.attempts > 1)
    comm.stop()
    assert comm.wait(PATIENCE) and comm.why_ended == 'it was closed'


def test_second_of_two_live_workers_with_one_name_ends_and_the_first_loses_nothing() -> None:
    server = InProcessServer()
    coordinator = Coordinator(
        {'parallel': {'coordinator': {'wait': 0.002, 'beat_interval': 0.01}}},
        server=server,
        commander=SteadyCommander(),
        data=TrainingData(create_buffer({'type': 'naive', 'replay_buffer_size': 100}), 1, 1),
        name='test',
    )
    coordinator.start()
    first, second = (NaiveCollector({'timeout': 0.5}, name='c', transport=server.connect()) for _ in range(2))
    first.start()
    wait_until(lambda: coordinator.workers.by_id)
    with pytest.raises(RequestRefusedError, match=r"has this name.*'c'.*another name"):
        second.run()
    first.close()
    coordinator.close()
    assert coordinator.workers.lost == [] and first.wait(0)


def test_a_request_of_a_worker_that_is_stopped_waits_no_longer() -> None:
    with socket.create_server(('127.0.0.1', 0)) as silent:
        address = f'127.0.0.1:{silent.getsockname()[1]}'
        transport = HTTPTransport({}, address)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(transport.request, AskTask(), timeout=300.0)
            wait_until(lambda: transport._next == [1])
            transport.hurry(0.2)
            with pytest.raises(CoordinatorLostError):
                waiting.result(PATIENCE)
        transport.close()


class Deaf(InProcessTransport):
    """A connection on which nobody answers; notes how long each request may take."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def request(self, message: Message, payload: Any = None, timeout: float = 0.0) -> Reply:
        self.seconds.append(timeout)
        raise CoordinatorLostError('nobody answers')

    def close(self) -> None: ...


def test_a_worker_that_never_joined_does_not_wait_long_for_its_coordinator() -> None:
    deaf = Deaf()
    with pytest.raises(CoordinatorLostError, match='nobody answers'):
        TransportCollector({'timeout': 60.0}, transport=deaf, name='c').run()
    assert deaf.seconds == [FIRST_SECONDS]
