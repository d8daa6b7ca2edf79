"""Lost, repeated and late messages: data arrive once and in order, and every row is accounted for."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from parallel_parts import PATIENCE, ScriptedCoordinator, compiled, task_of, wait_until, weights_of

from rlframe.errors import CoordinatorLostError, RequestRefusedError
from rlframe.parallel import comm_worker
from rlframe.parallel.comm_collector import BaseCommCollector
from rlframe.parallel.comm_worker import FIRST_SECONDS
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.roles import collector_maker
from rlframe.parallel.transport.answering import InProcessServer, InProcessTransport
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.parallel.transport.messages import Join, Message, Refused

DQN = ('cartpole_dqn', 'policy.collect.n_sample=6')


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
    comm = BaseCommCollector(
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
    comm = BaseCommCollector({'timeout': 1000.0}, transport=transport, name='c')
    if is_early:
        comm.stop()
    comm.start()
    wait_until(lambda: transport.attempts > 1)
    comm.stop()
    assert comm.wait(PATIENCE) and comm.why_ended == 'it was closed'


def test_worker_that_is_refused_until_its_timeout_ends_with_the_reason() -> None:
    coordinator = ScriptedCoordinator()
    coordinator.on[Join] = lambda message, payload: Reply(Refused('another worker has this name', '', False))
    comm = BaseCommCollector({'timeout': 0.2}, transport=coordinator.server.connect(), name='c')
    with pytest.raises(RequestRefusedError, match='has this name'):
        comm.run()
    assert coordinator.kinds.count('Join') > 1, 'the other one may have died'


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
        BaseCommCollector({'timeout': 60.0}, transport=deaf, name='c').run()
    assert deaf.seconds == [FIRST_SECONDS]
