"""WorkerTable: the present workers of a coordinator, and their deadlines."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from rlframe._version import __version__
from rlframe.errors import MessageError, RequestRefusedError, WorkerLostError
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.messages import Join
from rlframe.utils import schema
from rlframe.utils.schema import COUNT, TEXT, Schema, check_state

LONGEST_STEP = 2.0
"""Seconds between two looks at an ``AwakeClock``; after a longer time this process was frozen or busy."""


class AwakeClock:
    """Seconds in which this process could receive messages.

    It stands still while the process is frozen, or busy with a checkpoint, so that no worker counts as lost for that. One
    has to look at it more often than every ``LONGEST_STEP`` seconds.

    Args:
        clock: Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._left_out = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            if now - self._last > LONGEST_STEP:
                self._left_out += now - self._last
            self._last = now
            return now - self._left_out


@dataclasses.dataclass
class Worker:
    """A worker that has joined."""

    id: str
    role: str
    name: str
    place: str
    """Host and process, in words."""
    rank: int
    """Number among the workers of its role; a name keeps its number."""
    incarnation: int
    """How often a worker of this name joined before."""
    heard: float
    """When its last message came, on the clock of the table."""
    moved: float
    """When its last sign of life showed progress, or it got a task."""
    task: str = ''
    """Id of its task; empty if it has none."""
    progress: int = -1
    """That of its last sign of life; -1 before the first."""
    counted: int = 0
    """Training samples or episodes of it that were counted, over all its connections."""
    session: str = ''
    """Its connection."""
    lost_at: float | None = None
    """When it was lost, if it is waited for."""

    def __str__(self) -> str:
        return f'{self.role} {self.name} ({self.place})'


class WorkerTable:
    """Knows who takes part. A worker that is silent for longer than the deadline, in seconds, counts as lost."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self.deadline, self._clock = deadline, clock
        self.by_id: dict[str, Worker] = {}
        """The present workers."""
        self.joined = {'collector': 0, 'learner': 0}
        """How many workers have joined since the start, by role."""
        self.lost: list[str] = []
        """The workers that were lost, in words, with the causes."""
        self._known: dict[tuple[str, str], Worker] = {}  # the last one of each role and name, present or not
        self._missing_since = dict.fromkeys(self.joined, clock())

    def holder(self, message: Join, session: str) -> Worker | None:
        """Returns the worker whose place the sender takes, which is the sender itself; None if the name is free.

        Raises:
            MessageError: If another worker has the name. It may have died, so the sender is to ask again.
        """
        worker = self.find(message.role, message.name)
        if worker is not None and worker.session != session:
            raise MessageError(
                f'{worker} has this name, unless it is silent for {self.deadline:g} s',
                where='--name',
                got=message.name,
                expected='a name that no present worker has',
                remedy='Give this worker another name, or end the other one.',
            )
        return worker

    def join(self, message: Join, session: str = '') -> Worker:
        """Adds a worker under a new id."""
        self.joined[message.role] += 1
        name = f'{message.role}_{self.joined[message.role]}'
        key = (message.role, message.name)
        now = self._clock()
        place = f'pid {message.pid} on {message.host}'
        before = self._known.get(key)
        if before is None:
            rank = sum(role == message.role for role, _ in self._known)
            worker = Worker(name, *key, place, rank, 0, now, now, session=session)
        else:
            worker = Worker(name, *key, place, before.rank, before.incarnation + 1, now, now, session=session)
            worker.counted = before.counted if message.produced else 0  # else it is another process
        self.by_id[name] = self._known[key] = worker
        return worker

    SEAT: Schema = {'role': TEXT, 'name': TEXT, 'rank': COUNT, 'incarnation': COUNT, 'counted?': COUNT}
    SCHEMA: Schema = {'seats': schema.list_of(SEAT)}

    def state_dict(self) -> dict[str, Any]:
        """Returns the names, numbers and rows of all that ever joined, so that no seed is used and no row counted twice."""
        names = ('role', 'name', 'rank', 'incarnation', 'counted')
        return {'seats': [{name: getattr(worker, name) for name in names} for worker in self._known.values()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what ``state_dict()`` returned; no worker is present by that."""
        check_state(state, self.SCHEMA)
        left = [Worker(id='', place='', heard=0.0, moved=0.0, **seat) for seat in state['seats']]
        self._known = {(worker.role, worker.name): worker for worker in left}

    def find(self, role: str, name: str) -> Worker | None:
        """Returns the present worker of a role and a name; None if there is none."""
        return next((w for w in self.by_id.values() if (w.role, w.name) == (role, name)), None)

    def hear(self, worker: str, session: str) -> Worker:
        """Takes note of a message, and returns its sender.

        Raises:
            MessageError: If no worker with this id is present on this connection; the sender has to join again.
        """
        found = self.by_id.get(worker)
        if found is None or found.session != session:
            raise MessageError('the coordinator does not know this worker', remedy=m.REJOIN)
        found.heard = self._clock()
        return found

    def take_beat(self, worker: Worker, progress: int) -> None:
        """Takes note of a sign of life, and whether it shows progress."""
        if worker.progress != progress:
            worker.progress = progress
            worker.moved = self._clock()

    def give(self, worker: Worker, task: str) -> None:
        """Takes note of a task that a worker got."""
        worker.task = task
        worker.moved = self._clock()

    def leave(self, worker: Worker, cause: str) -> None:
        """Removes a worker; with a cause, as one that was lost."""
        del self.by_id[worker.id]
        self._missing_since[worker.role] = self._clock()
        if cause:
            self.lost.append(f'{worker}: {cause}')
            worker.lost_at = self._clock()

    def late(self, stall_deadline: float) -> list[tuple[Worker, bool]]:
        """Returns the workers whose deadline has passed, and whether they are silent.

        Others send signs of life, but have a task and made no progress for ``stall_deadline`` seconds, as with an env
        that hangs.
        """
        now = self._clock()
        present = self.by_id.values()
        silent = [worker for worker in present if now - worker.heard > self.deadline]
        stuck = [worker for worker in present if worker.task and now - worker.moved > stall_deadline]
        return [*((worker, True) for worker in silent), *((w, False) for w in stuck if w not in silent)]

    def lost_for(self, role: str, name: str) -> float:
        """Returns the seconds since a worker was lost; 0 if it has come back or was never lost."""
        worker = self._known.get((role, name))
        return 0.0 if worker is None or worker.lost_at is None else self._clock() - worker.lost_at

    def forget_loss(self, role: str, name: str) -> None:
        """Takes note that a lost worker will not come back."""
        if (role, name) in self._known:
            self._known[role, name].lost_at = None

    def expect(self, role: str) -> None:
        """Takes note that a worker of a role is on its way: the role has no deadline until one has come and gone."""
        self._missing_since[role] = math.inf

    def check_present(self, role: str, deadline: float, address: str) -> None:
        """Checks that a role has not been without a worker for longer than a deadline, in seconds.

        Raises:
            WorkerLostError: If it has; with the address at which one can join.
        """
        seconds = 0.0 if self.present(role) else self._clock() - self._missing_since[role]
        if seconds > deadline:
            lost = '; lost: ' + '; '.join(self.lost[-3:]) if self.lost else ''
            raise WorkerLostError(
                f'no {role} for {seconds:.0f} s{lost}',
                where='coordinator.role_deadline',
                remedy=f'Start one: python -m rlframe.entry -m {role} --join {address} -c CONFIG.',
            )

    def present(self, role: str) -> int:
        """Returns how many workers of a role are present."""
        return sum(worker.role == role for worker in self.by_id.values())

    def silences(self) -> dict[str, float]:
        """Returns the seconds since each worker was heard, by name."""
        return {worker.name: self._clock() - worker.heard for worker in self.by_id.values()}


def check_same(message: m.Join, fingerprint: str) -> None:
    """Checks that a worker has the same version of rlframe, and the same config unless the fingerprint here is empty.

    Raises:
        RequestRefusedError: If it has not.
    """
    for name, here, there in (
        ('version of rlframe', __version__, message.version),
        ('config', fingerprint, message.fingerprint),
    ):
        if here and here != there:
            raise RequestRefusedError(
                f'{message.role} {message.name}: another {name}: {there or "none"} there, {here or "none"} here',
                remedy='All roles need the same version of rlframe and the same config.',
            )
