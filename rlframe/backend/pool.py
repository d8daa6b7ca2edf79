"""Pools of actors: the interface that a collector uses, and the pool of one actor in a child process."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import socket
import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rlframe.backend.actor import CollectorActor, Facts, Failure, raise_failure
from rlframe.data.timestep import Array
from rlframe.errors import ActorLostError
from rlframe.run.child_process import ChildProcess
from rlframe.utils.serialize import ACTING, from_bytes, to_bytes, to_child

logger = logging.getLogger('rlframe.collector')

TICK = 0.5
"""Seconds between two calls of ``on_tick`` while a pool waits."""
CLOSE_SECONDS = 5.0
"""Time for actors to close their envs before they are killed."""


@dataclasses.dataclass(eq=False)
class Call:
    """A call of a method of an actor, and its result."""

    number: int
    """Number of the call, increasing over all actors."""
    rank: int
    method: str
    args: tuple[Any, ...]
    """Arguments; references to what the pool has stored are passed on as such."""
    seconds: float
    """Time limit, from when the actor begins it."""
    size: int = 0
    """Expected amount of data, in training samples or episodes."""
    is_wanted: bool = True
    """Whether the result is to be delivered."""
    ref: Any = None
    data: Any = None
    """The data of ``collect``, or a reference to them."""
    value: Any = None
    lost: str = ''
    """Reason for a missing value; empty if there is a value."""


class Pool(ABC):
    """Calls the methods of ``CollectorActor`` in other processes, without waiting for their results."""

    make: Any
    """Creates the parts in an actor; may be changed until the actors start."""
    restarts = 0
    """Number of actors that replaced a lost one."""
    is_broken = False
    """Whether too many actors were lost to go on, or one does not start."""
    why_inexact = ''
    """The reason why actors with the same seeds may act differently; empty if they cannot."""

    @property
    @abstractmethod
    def ranks(self) -> list[int]:
        """Ranks of the actors, in order."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The report of the actors, which is the same for all."""

    @property
    @abstractmethod
    def calls(self) -> list[Call]:
        """The calls whose results were not taken yet."""

    @property
    def load(self) -> Counter[int]:
        """Number of requests that each actor has pending or finished without the result having been taken."""
        return Counter(call.rank for call in self.calls)

    @property
    def under_way(self) -> int:
        """Expected amount of all requests not yet taken, in training samples or episodes."""
        return sum(call.size for call in self.calls)

    def incarnation(self, rank: int) -> int:
        """Returns the number of actors lost before at this rank."""
        return 0

    @abstractmethod
    def start(self) -> None:
        """Starts all actors that are not running, and waits until they are ready."""

    @abstractmethod
    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        """Stores weights for the actors, and returns what a request brings them by, and the stored copy."""

    @abstractmethod
    def ask(self, rank: int, method: str, *args: Any, size: int = 0) -> Call:
        """Calls a method of an actor, without waiting for the result."""

    @abstractmethod
    def wait(self, on_tick: Callable[[], None] | None = None) -> Call:
        """Waits for the next call that has a result or was lost; if there are several, returns the earliest.

        Raises:
            ActorLostError: If more actors were lost than may be replaced, with all causes, or one does not start in time.
            Exception: Any exception raised in an actor.
        """

    @abstractmethod
    def get(self, call: Call) -> Any:
        """Returns the data that a call collected; None if they were lost with their actor."""

    @abstractmethod
    def abandon(self) -> None:
        """Forgets the pending calls: their results are not delivered."""

    @abstractmethod
    def check_open(self) -> None:
        """Raises ``ValueError`` after ``close``."""

    @abstractmethod
    def close(self) -> None:
        """Ends all actors; may be called twice."""

    def ask_all(self, method: str, args: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Calls a method with the arguments of each rank, again if an actor is lost, and returns the answers by rank.

        No call may be pending. All answers are None if too many actors were lost to continue.
        """
        if self.is_broken:
            return dict.fromkeys(args)
        self.check_open()
        for rank, given in args.items():
            self.ask(rank, method, *given)
        values: dict[int, Any] = {}
        while len(values) < len(args):
            call = self.wait()
            if call.lost:
                self.ask(call.rank, method, *call.args)
            else:
                values[call.rank] = call.value
        return dict(sorted(values.items()))

    def state_dict(self) -> dict[str, Any]:
        """Returns what the seeds of future actors depend on."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most have none
        """Restores the state from ``state_dict()``."""


class ChildPool(Pool):
    """One actor in a child process; a loss ends the run, which its last checkpoint continues.

    Args:
        make: Creates the parts in the child, like ``MakeCollector``.

    Raises:
        SerializationError: If ``make`` cannot be sent to a child; with the path to it.
    """

    def __init__(self, make: Any) -> None:
        self.make = make
        to_bytes(make, 'make')  # raises here if it cannot be sent
        self._calls: deque[Call] = deque()
        self._numbers = itertools.count()
        self._child: ChildProcess | None = None
        self._closed = False

    def start(self) -> None:
        if self._child is not None:
            return
        ours, theirs = socket.socketpair()
        # rank, incarnation, and no import path, as it has that of this process
        given = (to_child(self.make, 'make', ACTING), 0, 0, ())
        with theirs:
            self._child = ChildProcess(
                'rlframe-collector',
                __name__,
                (theirs.fileno(),),
                to_bytes(given, 'make'),
                lambda text: logger.info('collector: %s', text),
                (theirs.fileno(),),
            )
        self._link = Connection(ours.detach())
        self.ask(0, 'launch')
        self._facts: Facts = self.wait().value

    @property
    def ranks(self) -> list[int]:
        return [0]

    @property
    def facts(self) -> Facts:
        return self._facts

    @property
    def calls(self) -> list[Call]:
        return [call for call in self._calls if call.is_wanted]

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        stored = [np.array(piece) for piece in pieces]  # they may be views of weights that change
        return stored, stored

    def ask(self, rank: int, method: str, *args: Any, size: int = 0) -> Call:
        self.check_open()
        call = Call(next(self._numbers), rank, method, args, 0.0, size)
        with contextlib.suppress(OSError):  # its end is noticed when its answer is due
            self._link.send_bytes(to_bytes((method, args), method))
        self._calls.append(call)
        return call

    def wait(self, on_tick: Callable[[], None] | None = None) -> Call:
        while True:
            while not self._link.poll(TICK):
                if on_tick is not None:
                    on_tick()
            call = self._calls.popleft()
            try:
                value = from_bytes(self._link.recv_bytes())
            except (EOFError, OSError):
                self.is_broken = True
                raise ActorLostError(
                    f'the process that collects ended in {call.method}: {self._end(CLOSE_SECONDS)}',
                    where='policy.collect.collector.overlap',
                    remedy='Resume the run. Is there enough memory? The log of the run has its last output.',
                ) from None
            call.value, call.data = (
                value if isinstance(value, tuple) and call.method == 'collect' else (value, None)
            )
            if call.is_wanted:
                if isinstance(call.value, Failure):
                    raise_failure(call.value, 'the process that collects')
                return call

    def get(self, call: Call) -> Any:
        return call.data

    def abandon(self) -> None:
        for call in self._calls:
            call.is_wanted = False

    def check_open(self) -> None:
        if self._closed:
            raise ValueError('the process of this collector has been shut down')

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._child is not None:
            self._calls.clear()
            self._link.close()
            self._end(CLOSE_SECONDS)

    def _end(self, seconds: float) -> str:
        """Waits for the child to end by itself, kills it after these seconds, and returns how it ended."""
        assert self._child is not None
        self._child.leave(seconds)
        how = self._child.ended
        self._child.end(0.0)
        return how or 'it closed its connection'


def main(link: int) -> None:
    """Serves the calls of a ``ChildPool`` through a file descriptor, until the pool closes the connection."""
    actor = CollectorActor(*from_bytes(sys.stdin.buffer.read()))
    with Connection(link) as connection:
        while True:
            try:
                method, args = from_bytes(connection.recv_bytes())
            except (EOFError, OSError):
                break
            answer = getattr(actor, method)(*args)
            with contextlib.suppress(OSError):  # the parent has closed it
                connection.send_bytes(to_bytes(answer, method))
    actor.close()
