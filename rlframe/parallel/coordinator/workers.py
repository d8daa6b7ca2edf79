"""The present workers, and RequestHandler: answers their requests, one after the other."""

from __future__ import annotations

import dataclasses
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from rlframe._version import __version__
from rlframe.errors import MessageError, RequestRefusedError, RLFrameError, WorkerLostError
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Envelope, Reply, Server
from rlframe.parallel.transport.messages import Beat, Join
from rlframe.utils import schema
from rlframe.utils.options import DeadlinesConfig
from rlframe.utils.schema import COUNT, TEXT, Schema, check_state


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
    beat: Beat | None = None
    """Its last sign of life."""
    pushed: int = 0
    """Training samples or episodes of it that were taken."""
    dropped: int = 0
    """Training samples or episodes of it that arrived and were dropped."""
    session: str = ''
    """Its connection."""

    def __str__(self) -> str:
        return f'{self.role} {self.name} ({self.place})'


class WorkerTable:
    """Knows who takes part. A worker that is silent for longer than the deadline counts as lost.

    Args:
        deadline: Seconds of silence.
        clock: Returns seconds that never go back.
    """

    def __init__(self, deadline: float, clock: Callable[[], float] = monotonic) -> None:
        self.deadline, self._clock = deadline, clock
        self.by_id: dict[str, Worker] = {}
        """The present workers."""
        self.joined = {'collector': 0, 'learner': 0}
        """How many workers have joined since the start, by role."""
        self.lost: list[str] = []
        """The workers that were lost, in words, with the causes."""
        self._seats: dict[tuple[str, str], tuple[int, int]] = {}  # rank and incarnation of each role and name
        # when the workers that have not come back were lost, by role and name
        self._lost_at: dict[tuple[str, str], float] = {}
        self._missing_since = dict.fromkeys(self.joined, clock())

    def holder(self, message: Join, session: str) -> Worker | None:
        """Returns the worker whose place the sender takes, which is the sender itself; None if the name is free.

        Args:
            message: The request to join.
            session: The sender's connection.

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
        place = f'pid {message.pid} on {message.host}'
        rank, incarnation = self._seat(message.role, message.name)
        worker = Worker(
            name,
            message.role,
            message.name,
            place,
            rank,
            incarnation,
            self._clock(),
            self._clock(),
            session=session,
        )
        self.by_id[name] = worker
        self._lost_at.pop((worker.role, worker.name), None)
        return worker

    def _seat(self, role: str, name: str) -> tuple[int, int]:
        """Returns the rank of a name, and how often it was taken before."""
        if (role, name) in self._seats:
            rank, incarnation = self._seats[role, name]
            seat = rank, incarnation + 1
        else:
            seat = sum(other == role for other, _ in self._seats), 0
        self._seats[role, name] = seat
        return seat

    SCHEMA: Schema = {
        'seats': schema.list_of({'role': TEXT, 'name': TEXT, 'rank': COUNT, 'incarnation': COUNT}),
    }

    def state_dict(self) -> dict[str, Any]:
        """Returns the names and numbers of all that ever joined, so that no seed is used twice."""
        names = ('role', 'name', 'rank', 'incarnation')
        return {'seats': [dict(zip(names, key + seat, strict=True)) for key, seat in self._seats.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what ``state_dict()`` returned; no worker is present by that."""
        check_state(state, self.SCHEMA)
        self._seats = {(s['role'], s['name']): (s['rank'], s['incarnation']) for s in state['seats']}

    def find(self, role: str, name: str) -> Worker | None:
        """Returns the present worker of a role and a name; None if there is none."""
        return next((w for w in self.by_id.values() if (w.role, w.name) == (role, name)), None)

    def hear(self, worker: str) -> Worker | None:
        """Takes note of a message, and returns its sender; None if that is not a present worker."""
        found = self.by_id.get(worker)
        if found is not None:
            found.heard = self._clock()
        return found

    def take_beat(self, worker: Worker, beat: Beat) -> None:
        """Takes note of a sign of life, and whether it shows progress."""
        if worker.beat is None or _counts(worker.beat) != _counts(beat):
            worker.moved = self._clock()
        worker.beat = beat

    def give(self, worker: Worker, task: str) -> None:
        """Takes note of a task that a worker got."""
        worker.task, worker.moved = task, self._clock()

    def excuse(self, seconds: float) -> None:
        """Extends all deadlines by a time in which no message could be received."""
        for worker in self.by_id.values():
            worker.heard, worker.moved = worker.heard + seconds, worker.moved + seconds

    def leave(self, worker: str, cause: str = '') -> Worker | None:
        """Removes a worker; with a cause, as one that was lost."""
        found = self.by_id.pop(worker, None)
        if found is not None:
            self._missing_since[found.role] = self._clock()
            if cause:
                self.lost.append(f'{found}: {cause}')
                self._lost_at[found.role, found.name] = self._clock()
        return found

    def silent(self) -> list[Worker]:
        """Returns the workers whose deadline has passed."""
        now = self._clock()
        return [worker for worker in self.by_id.values() if now - worker.heard > self.deadline]

    def stuck(self, deadline: float) -> list[Worker]:
        """Returns the workers that have a task and made no progress for longer than a deadline, in seconds."""
        now = self._clock()
        return [worker for worker in self.by_id.values() if worker.task and now - worker.moved > deadline]

    def lost_for(self, role: str, name: str) -> float:
        """Returns the seconds since a worker was lost; 0 if it has come back or was never lost."""
        lost_at = self._lost_at.get((role, name))
        return 0.0 if lost_at is None else self._clock() - lost_at

    def forget_loss(self, role: str, name: str) -> None:
        """Takes note that a lost worker will not come back."""
        self._lost_at.pop((role, name), None)

    def missing(self, role: str) -> float:
        """Returns the seconds since the last worker of a role was present; 0 if one is."""
        return 0.0 if self.present(role) else self._clock() - self._missing_since[role]

    def present(self, role: str) -> int:
        """Returns how many workers of a role are present."""
        return sum(worker.role == role for worker in self.by_id.values())

    def counts(self) -> Mapping[str, Any]:
        """Returns facts about each worker for displays, by name."""
        return {
            worker.name: {
                'role': worker.role,
                'state': worker.beat.state if worker.beat else 'joined',
                'task': worker.task,
                'envstep': worker.beat.envstep if worker.beat else 0,
                'train_iter': worker.beat.train_iter if worker.beat else 0,
                'version': worker.beat.version if worker.beat else 0,
                'pushed': worker.pushed,
                'dropped': worker.dropped,
                'silent': self._clock() - worker.heard,
            }
            for worker in self.by_id.values()
        }


def _counts(beat: Beat) -> tuple[Any, ...]:
    """Returns what changes in signs of life as work goes on."""
    return beat.state, beat.envstep, beat.train_iter, beat.version, beat.steps


LONG = 1.0
"""Seconds of a request that are added to the deadlines of all workers, as their messages had to wait."""
Answer = Callable[[Worker, Any, Any], m.Message | Reply]
"""Answers a message of a worker, which may have a payload."""


class RequestHandler(ABC):
    """Answers one request after the other, none of which waits, and removes workers whose deadline has passed.

    Args:
        limits: Deadlines.
        server: The end of a transport that workers join.
        fingerprint: Hash of the part of the config that all roles share; empty: it is not compared.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        limits: DeadlinesConfig,
        server: Server,
        fingerprint: str,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._limits, self.server, self._fingerprint = limits, server, fingerprint
        self.workers = WorkerTable(limits.worker_deadline, clock)
        """The present workers."""
        self.lock = threading.RLock()
        """Held while a request is answered."""
        self.failure: BaseException | None = None
        """What a request raised that was no fault of its sender."""

    @abstractmethod
    def _answers(self) -> Mapping[type[m.Message], Answer]:
        """Returns what answers each kind of message but ``Join``."""

    @abstractmethod
    def _admit(self, message: m.Join, session: str) -> m.Joined:
        """Admits a worker that fits, over its connection."""

    @abstractmethod
    def leave(self, worker: Worker, cause: str) -> None:
        """Removes a worker and ends its task; with a cause, as one that was lost."""

    @abstractmethod
    def _lacks(self, worker: Worker) -> str:
        """Returns what a worker with a task has to do next, in words; empty if it may wait."""

    def lose_late(self) -> None:
        """Removes workers that are silent, or send signs of life but make no progress, as with an env that hangs."""
        limits = self._limits
        for worker in self.workers.silent():
            self.leave(worker, f'no sign of life for {limits.worker_deadline:g} s')
        for worker in self.workers.stuck(limits.stall_deadline):
            if what := self._lacks(worker):
                self.leave(worker, f'no {what} for {limits.stall_deadline:g} s')

    def check_present(self, role: str) -> None:
        """Checks that a role has not been without a worker for too long.

        Raises:
            WorkerLostError: If it has.
        """
        if (seconds := self.workers.missing(role)) > self._limits.role_deadline:
            lost = '; lost: ' + '; '.join(self.workers.lost[-3:]) if self.workers.lost else ''
            raise WorkerLostError(
                f'no {role} for {seconds:.0f} s{lost}',
                where='coordinator.role_deadline',
                remedy=f'Start one: python -m rlframe.entry -m {role} --join {self.server.address} -c CONFIG.',
            )

    def handle(self, envelope: Envelope, payload: Any = None) -> Reply:
        """Answers a request.

        Raises:
            MessageError: If it does not fit the situation, such as a message of a worker that has not joined.
            RequestRefusedError: If the worker may not join.
        """
        with self.lock:
            message, start = envelope.message, monotonic()
            try:
                if isinstance(message, m.Join):
                    self._check_same(message)
                    return Reply(self._admit(message, envelope.session))
                worker = self.workers.hear(envelope.sender)
                answer = self._answers().get(type(message))
                if worker is None or answer is None:
                    raise MessageError(
                        f'{type(message).__name__} of {envelope.sender!r} is not expected here'
                    )
                reply = answer(worker, message, payload)
                return reply if isinstance(reply, Reply) else Reply(reply)
            except RLFrameError:
                raise
            # the run must not continue after half of a request: the thread that watches the workers raises the error
            except BaseException as error:
                self.failure = error
                raise
            finally:
                if (seconds := monotonic() - start) > LONG:  # a checkpoint, for example
                    self.workers.excuse(seconds)

    def raise_failure(self) -> None:
        """Raises what a request raised that was no fault of its sender, if one did."""
        if self.failure is not None:
            raise self.failure

    def _check_same(self, message: m.Join) -> None:
        """Refuses a worker with another version of rlframe or another config."""
        for name, here, there in (
            ('version of rlframe', __version__, message.version),
            ('config', self._fingerprint, message.fingerprint),
        ):
            if here and here != there:
                raise RequestRefusedError(
                    f'{message.role} {message.name} has another {name}: {there or "none"} there, {here or "none"} here',
                    remedy='All roles need the same version of rlframe and the same config.',
                )
