"""Places: where workers run, and how calls get there. Threads and child processes are here, Ray actors in ``backend/ray``."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import queue
import socket
import struct
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.errors import WorkerLostError
from rlframe.run.child_process import ChildProcess
from rlframe.utils.serialize import ACTING, from_bytes, to_bytes, to_child

if TYPE_CHECKING:
    from rlframe.data.timestep import Array
    from rlframe.remote.supervisor import Call
    from rlframe.remote.worker import Worker

logger = logging.getLogger('rlframe.remote')
MESSAGE_SECONDS = 120
"""Longest time without progress within a message."""
EXIT_SECONDS = 5.0
"""Time for a child that closed its connection to end, so that its exit status is known."""


class LostError(Exception):
    """The end of a worker, or the loss of its data; the text is the cause."""


class Place(ABC):
    """Starts workers of one class and carries calls to them; a worker serves its calls in the order of sending.

    A link is whatever the place needs to reach a worker.

    Args:
        kind: Class of the workers.
        names: Names of the workers in messages, by rank; by default, their role and rank.
    """

    name = ''
    """What runs a worker, in messages."""
    tag = 'worker'
    """Begins the names of metrics about workers; empty: there are none."""
    why_inexact = ''
    """The reason why workers with the same seeds may act differently; empty if they cannot."""
    components: Iterable[str] = ACTING
    """Kinds of components that workers know if only the main program registers them."""

    def __init__(self, kind: type[Worker], names: Sequence[str] = ()) -> None:
        self.kind, self._names = kind, names

    def who(self, rank: int) -> str:
        """Returns the name of a worker in messages, with what runs it."""
        name = self._names[rank] if self._names else f'{self.kind.role} {rank}'
        return f'{name} ({self.name})'

    def clock(self) -> float:
        """Returns seconds that never go back."""
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        """Lets time pass."""
        time.sleep(seconds)

    def reserve(self, ranks: Sequence[int], own: Sequence[Any] = ()) -> None:  # noqa: B027  most have no limit
        """Reserves the resources of workers.

        Args:
            ranks: Their ranks.
            own: Options of each in addition to those of the place.

        Raises:
            ResourceError: If there are not enough; with the numbers.
        """

    def release(self, rank: int) -> None:  # noqa: B027  most have no limit
        """Gives the resources of a worker back."""

    def lacking(self) -> str:
        """Returns what workers need and what is free, for the error about one that does not start; empty if unknown."""
        return ''

    def pack(self, make: Any) -> Any:
        """Returns what creates the parts in the form in which a worker gets it.

        Raises:
            SerializationError: If it cannot be sent to a worker; with the path to it.
        """
        return to_child(make, 'make', self.components)

    def take_make(self, make: Any) -> None:
        """Takes what creates the parts in workers that are started from now on, packed."""
        self._make = make

    @abstractmethod
    def start(self, rank: int, incarnation: int) -> Any:
        """Starts a worker without waiting for it, and returns the link to it.

        Raises:
            LostError: If none can be started.
        """

    @abstractmethod
    def send(self, link: Any, call: Call) -> None:
        """Sends a call."""

    @abstractmethod
    def wait(self, calls: Sequence[Call], seconds: float) -> Iterable[Call]:
        """Returns the calls that have an answer, or whose worker has ended; waits up to these seconds for the first."""

    @abstractmethod
    def answer(self, call: Call) -> Any:
        """Returns the answer to a call that ``wait`` has returned, without the data that come beside it.

        Raises:
            LostError: If the worker has ended.
        """

    def data(self, call: Call) -> Any:
        """Returns the data that come beside the answer to a call.

        Raises:
            LostError: If they were lost.
        """
        return call.data

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        """Stores weights, and returns what a call brings them by, and the stored copy."""
        stored = [np.array(piece) for piece in pieces]  # they may be views of weights that change
        return stored, stored

    @abstractmethod
    def end(self, links: Sequence[Any], seconds: float) -> None:
        """Lets workers close what they hold, and kills those that still run after these seconds."""

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Releases what the place itself holds; may be called twice."""


class ThreadLink:
    """A worker, and the thread that serves its calls.

    Args:
        worker: The worker.
        name: Name of the thread.
    """

    def __init__(self, worker: Worker, name: str) -> None:
        self.worker = worker
        self.calls: queue.SimpleQueue[tuple[Future[Any], str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, method: str, args: tuple[Any, ...] = ()) -> Future[Any]:
        """Calls a method of the worker once the calls before are answered."""
        answer: Future[Any] = Future()
        self.calls.put((answer, method, args))
        return answer

    def _serve(self) -> None:
        for answer, method, args in iter(self.calls.get, None):
            try:
                answer.set_result(getattr(self.worker, method)(*args))
            except BaseException as error:  # such as an exit: ``answer`` raises it
                answer.set_exception(error)


class ThreadPlace(Place):
    """Runs each worker in a thread of this process; nothing is copied, and a worker that hangs cannot be killed."""

    name = 'thread'
    tag = 'thread'

    def pack(self, make: Any) -> Any:
        return make

    def start(self, rank: int, incarnation: int) -> ThreadLink:
        return ThreadLink(self.kind(self._make, rank, incarnation, None), f'rlframe-{self.who(rank)}')

    def send(self, link: ThreadLink, call: Call) -> None:
        call.ticket = link.call(call.method, call.args)

    def wait(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        answered, _ = wait([call.ticket for call in calls], seconds, FIRST_COMPLETED)
        return [call for call in calls if call.ticket in answered]

    def answer(self, call: Call) -> Any:
        error = call.ticket.exception()
        if error is not None:
            raise LostError(f'{type(error).__name__}: {error}')
        value = call.ticket.result()
        if call.method in self.kind.with_data:
            value, call.data = value
        return value

    def end(self, links: Sequence[ThreadLink], seconds: float) -> None:
        closing = []
        for link in links:
            link.worker.stop()
            closing.append(link.call('close'))
            link.calls.put(None)
        wait(closing, seconds)


class Stored:
    """Pieces of weights in memory that children read when a call brings them this.

    Args:
        pieces: Arrays, uint8 [bytes] each, at least one of them not empty; they are copied.
    """

    def __init__(self, pieces: Sequence[Array]) -> None:
        self._ends = np.cumsum([len(piece) for piece in pieces]).tolist()
        self._fd = os.memfd_create('rlframe-weights')
        weakref.finalize(self, os.close, self._fd)
        os.ftruncate(self._fd, self._ends[-1])
        memory = np.frombuffer(mmap.mmap(self._fd, self._ends[-1]), np.uint8)
        np.concatenate(pieces, out=memory)
        self.pieces: Sequence[Array] = np.split(memory, self._ends[:-1])
        """The copies."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (f'/proc/{os.getpid()}/fd/{self._fd}', self._ends)


def _read(path: str, ends: Sequence[int]) -> list[Array]:
    """Returns the pieces that a ``Stored`` of the parent keeps."""
    return np.split(np.memmap(path, np.uint8, 'r'), ends[:-1])


class Link:
    """A child process, our end of its connection, and the calls that it has not answered.

    Args:
        child: The process.
        socket_: Our end.
    """

    def __init__(self, child: ChildProcess, socket_: socket.socket) -> None:
        for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # a stopped process must not stop this one
            socket_.setsockopt(socket.SOL_SOCKET, limit, struct.pack('ll', MESSAGE_SECONDS, 0))
        self.child = child
        self.connection = Connection(socket_.detach())
        self.calls: list[Call] = []


class ChildPlace(Place):
    """Runs each worker in a child process that dies with this one; calls go through a pair of Unix sockets.

    What a child prints goes to the log.
    """

    name = 'process'
    tag = 'process'

    def start(self, rank: int, incarnation: int) -> Link:
        ours, theirs = socket.socketpair()
        given = to_bytes((self.kind, self._make, rank, incarnation), 'make')
        name = self.who(rank)

        def write(text: str) -> None:
            logger.info('%s: %s', name, text)

        with theirs:
            fd = theirs.fileno()
            try:
                child = ChildProcess(name, __name__, (fd, name), given, write, (fd,))
            except WorkerLostError as error:
                ours.close()
                raise LostError(f'no process could be started: {error.__cause__}') from error
        return Link(child, ours)

    def send(self, link: Link, call: Call) -> None:
        call.ticket = link
        link.calls.append(call)
        with contextlib.suppress(OSError):  # its end is noticed when its answer is due
            link.connection.send_bytes(to_bytes((call.method, call.args), call.method))

    def wait(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        links = {call.ticket.connection: call.ticket for call in calls}
        return [links[readable].calls[0] for readable in connection.wait(list(links), seconds)]

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        if not hasattr(os, 'memfd_create'):
            return super().put(pieces)
        stored = Stored(pieces)
        return stored, stored.pieces

    def answer(self, call: Call) -> Any:
        link: Link = call.ticket
        try:
            value = from_bytes(link.connection.recv_bytes())
        except (EOFError, OSError):
            link.child.leave(EXIT_SECONDS)
            raise LostError(link.child.ended or 'it closed its connection') from None
        link.calls.remove(call)
        if call.method in self.kind.with_data:
            value, call.data = value
        return value

    def end(self, links: Sequence[Link], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for link in links:
            link.connection.close()
        for link in links:
            link.child.leave(max(deadline - time.monotonic(), 0.0))
            link.child.end(0.0)


def main(link: int, name: str) -> None:
    """Serves the calls of a ``ChildPlace``, as the worker of this name, through a file descriptor until that is closed."""
    threading.current_thread().name = name
    kind, make, rank, incarnation = from_bytes(sys.stdin.buffer.read())
    worker = kind(make, rank, incarnation, ())  # its import path is that of the parent already
    with Connection(link) as both_ways:
        received: queue.Queue[bytes | None] = queue.Queue()

        def receive() -> None:
            # in a thread of its own: if both ends only sent, each would wait for the other
            while True:
                try:
                    received.put(both_ways.recv_bytes())
                except (EOFError, OSError):
                    received.put(None)
                    worker.stop()
                    return

        threading.Thread(target=receive, name='calls', daemon=True).start()
        while (message := received.get()) is not None:
            method, args = from_bytes(message)
            answer = getattr(worker, method)(*args)
            with contextlib.suppress(OSError):  # the parent has closed it
                both_ways.send_bytes(to_bytes(answer, method))
    worker.close()
