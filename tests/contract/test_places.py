"""Every place keeps the same promises: answers once and in order, and a worker that dies, hangs or raises is noticed and replaced."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_envs import wait_until
from place_workers import echo, parts
from ray_runs import is_alive

from rlframe._version import __version__
from rlframe.errors import SerializationError, WorkerLostError
from rlframe.remote.places import ChildPlace, Place, ThreadPlace
from rlframe.remote.supervisor import Limits, Losses, Supervisor

MANY = 2**22
"""Bytes that no pipe or socket holds at once."""


def place_of(kind: str) -> Place:
    if kind != 'ray':
        return ThreadPlace(echo()) if kind == 'thread' else ChildPlace(echo())
    from rlframe.backend.ray.place import RayPlace

    return RayPlace(echo(), remote_configs={'num_cpus': 0})


Make = Callable[..., Supervisor]


@pytest.fixture(params=['thread', 'child', pytest.param('ray', marks=pytest.mark.ray)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def processes(kind: str) -> None:
    """Lets a test run only where workers are processes, which can be killed."""
    if kind == 'thread':
        pytest.skip('a thread cannot be killed')


@pytest.fixture
def supervise(kind: str) -> Iterator[Make]:
    made: list[Supervisor] = []

    def make(count: int = 1, make: Any = parts, **limits: Any) -> Supervisor:
        given = {'start_seconds': 120.0, 'call_seconds': 60.0, 'restarts': 5, 'where': 'here', **limits}
        made.append(Supervisor(place_of(kind), make, count, Limits(**given)))
        made[-1].start()
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.close()


def test_answers_come_once_and_for_each_worker_in_the_order_of_asking(supervise: Make) -> None:
    supervisor = supervise(2)
    asked = [supervisor.ask(rank, 'echo', i) for i in range(4) for rank in (1, 0)]
    taken = [supervisor.wait() for _ in asked]
    assert sorted(call.number for call in taken) == [call.number for call in asked]
    for rank in (0, 1):
        assert [call.value for call in taken if call.rank == rank] == [(rank, 0, i) for i in range(4)]
    assert supervisor.calls == [] and supervisor.restarts == 0
    assert supervisor.ask_all('echo', {1: ('b',), 0: ('a',)}) == {0: (0, 0, 'a'), 1: (1, 0, 'b')}


def test_data_come_beside_the_answer(supervise: Make) -> None:
    supervisor = supervise()
    supervisor.ask(0, 'give', 7)
    call = supervisor.wait()
    assert call.value == 0 and supervisor.get(call).tolist() == [7, 7, 7]


def test_what_is_stored_once_arrives_in_every_worker(supervise: Make) -> None:
    supervisor = supervise(2)
    stored, copy = supervisor.put([np.arange(5, dtype=np.uint8), np.full(MANY, 7, np.uint8)])
    answers = supervisor.ask_all('echo', {0: (stored,), 1: (stored,)})
    for _, _, pieces in answers.values():
        assert [piece.tolist() for piece in pieces] == [piece.tolist() for piece in copy]


def test_large_messages_may_cross_each_other(supervise: Make) -> None:
    supervisor = supervise()
    for _ in range(3):
        supervisor.ask(0, 'echo', bytes(MANY))
    assert [len(supervisor.wait().value[2]) for _ in range(3)] == [MANY] * 3


def test_an_exception_is_raised_here_with_the_name_of_the_worker_which_goes_on(supervise: Make) -> None:
    supervisor = supervise(2)
    supervisor.ask(1, 'fail')
    with pytest.raises(ZeroDivisionError) as caught:
        supervisor.wait()
    assert str(caught.value) == f'worker 1 ({supervisor.place.name}): by hand'
    assert 'raise ZeroDivisionError' in caught.value.__notes__[0]
    assert supervisor.ask_all('echo', {1: ('x',)}) == {1: (1, 0, 'x')}


@pytest.mark.parametrize(
    'how', ['exit', *(pytest.param(how, marks=pytest.mark.slow) for how in ('kill', 'stop'))]
)
@pytest.mark.usefixtures('processes')
def test_a_worker_that_ends_or_hangs_is_replaced_and_its_calls_are_lost(how: str, supervise: Make) -> None:
    supervisor = supervise(2, call_seconds=60.0 if how != 'stop' else 8.0)
    pids = [slot.facts for slot in supervisor.slots.values()]
    if how == 'exit':
        supervisor.ask(1, 'end', 3)
    else:
        supervisor.ask(1, 'hang')
        os.kill(pids[1], signal.SIGKILL if how == 'kill' else signal.SIGSTOP)
    supervisor.ask(1, 'echo', 'waits')
    supervisor.ask(0, 'echo', 'other')
    calls = {call.args: call for call in (supervisor.wait() for _ in range(3))}
    assert calls['other',].value == (0, 0, 'other') and not calls['other',].lost
    lost = [call.lost for args, call in calls.items() if args != ('other',)]
    assert len(set(lost)) == 1 and lost[0] != ''
    assert 'within 8 s' in lost[0] if how == 'stop' else 'in ' in lost[0]
    assert supervisor.ask_all('echo', {1: ('again',)}) == {1: (1, 1, 'again')}
    assert supervisor.restarts == 1 and wait_until(lambda: not is_alive(pids[1]), 20)


@pytest.mark.slow
@pytest.mark.usefixtures('processes')
def test_more_losses_than_may_be_replaced_end_it_with_all_causes(supervise: Make) -> None:
    supervisor = supervise(2, restarts=1, window=600.0)
    for code in (3, 4):
        while supervisor.ready != [0, 1]:
            supervisor.look()
        supervisor.ask(1, 'end', code)
        if code == 3:
            assert supervisor.wait().lost
    with pytest.raises(
        WorkerLostError, match='2 workers were lost within 600 s, 1 may be replaced'
    ) as caught:
        supervisor.wait()
    assert str(caught.value).count(f'worker 1 ({supervisor.place.name}) was lost: in end: ') == 2
    assert supervisor.is_broken and supervisor.ask_all('echo', {0: ('x',)}) == {0: None}


def test_answers_to_abandoned_calls_are_not_delivered(supervise: Make) -> None:
    supervisor = supervise()
    supervisor.ask(0, 'echo', 'old')
    supervisor.abandon()
    supervisor.ask(0, 'echo', 'new')
    assert supervisor.wait().value[2] == 'new' and supervisor.calls == []


@pytest.mark.slow
@pytest.mark.usefixtures('processes')
def test_workers_may_come_and_go(supervise: Make) -> None:
    supervisor = supervise()
    assert supervisor.add([{}], parts) == [1] and supervisor.ranks == [0, 1]
    pid = supervisor.slots[1].facts
    supervisor.remove(1)
    assert wait_until(lambda: not is_alive(pid), 20)
    assert supervisor.add([{}], parts) == [2], 'ranks are never used twice'


@pytest.mark.usefixtures('processes')
def test_workers_close_what_they_hold_and_none_is_left(kind: str, supervise: Make, tmp_path: Path) -> None:
    sign = str(tmp_path / 'closed')
    supervisor = supervise(make=lambda rank, incarnation: sign)
    pid = supervisor.slots[0].facts
    supervisor.close()
    supervisor.close()
    assert Path(sign).exists() and wait_until(lambda: not is_alive(pid), 20)
    with pytest.raises(ValueError, match='have been shut down'):
        supervisor.ask(0, 'echo', 1)


@pytest.mark.usefixtures('processes')
def test_what_cannot_be_sent_is_refused_before_a_worker_starts(kind: str) -> None:
    place = place_of(kind)
    with pytest.raises(SerializationError, match='make'):
        Supervisor(place, threading.Lock(), 1, Limits())
    place.close()


def no_process(*_: Any, **__: Any) -> None:
    raise BlockingIOError(11, 'no process is free')


def test_workers_that_cannot_be_started_count_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(ChildPlace(echo()), parts, 1, Limits(restarts=1))
    monkeypatch.setattr('rlframe.remote.supervisor.PAUSE', 0.0)
    monkeypatch.setattr('rlframe.run.child_process.subprocess.Popen', no_process)
    with closing(supervisor), pytest.raises(WorkerLostError, match='2 workers were lost, 1 may be') as caught:
        supervisor.start()
    cause = 'worker 0 (process) did not start: no process could be started: [Errno 11] no process is free'
    assert str(caught.value).count(cause) == 2 and supervisor.is_broken


def test_a_command_that_workers_do_not_know_is_refused_and_they_go_on(supervise: Make) -> None:
    supervisor = supervise()
    name = supervisor.place.name
    with pytest.raises(ValueError, match=rf"worker 0 \({name}\) does not know the command 'fly'"):
        supervisor.ask(0, 'fly')
    assert supervisor.ask_all('echo', {0: ('x',)}) == {0: (0, 0, 'x')}


@pytest.mark.usefixtures('processes')
def test_a_worker_of_another_version_is_refused_with_both(
    supervise: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('rlframe.utils.serialize.__version__', '9.9.9')
    with pytest.raises(SerializationError) as caught:
        supervise()
    text = str(caught.value)
    assert text.startswith('worker 0 (')
    assert f'another version of rlframe: {__version__} there, 9.9.9 here' in text
    assert not hasattr(caught.value, '__notes__'), 'a traceback would say nothing more'


def test_losses_count_within_their_window_only() -> None:
    losses = Losses(1, 10.0, 'here')
    for now in (0.0, 11.0, 22.0):
        losses.add('gone', now)
    with pytest.raises(WorkerLostError, match='2 workers were lost within 10 s'):
        losses.add('again', 23.0)


def test_a_worker_in_a_thread_leaves_the_signals_of_the_process_alone() -> None:
    before = signal.signal(signal.SIGTERM, print)
    try:
        supervisor = Supervisor(ThreadPlace(echo()), parts, 1, Limits())
        supervisor.start()
        supervisor.close()
        assert signal.getsignal(signal.SIGTERM) is print
    finally:
        signal.signal(signal.SIGTERM, before)
