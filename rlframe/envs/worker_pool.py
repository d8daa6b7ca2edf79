"""W worker processes: sends requests, waits with a time limit, and names lost workers."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rlframe.envs.env_worker import IDLE, WatchArray, new_memory
from rlframe.envs.faults import Fault
from rlframe.envs.worker_process import ERROR, WorkerProcess
from rlframe.errors import EnvCrashedError, EnvTimeoutError
from rlframe.utils.serialize import from_bytes

CLOSE_SECONDS = 2.0
"""Seconds for workers to close their envs before they are killed."""
EXIT_SECONDS = 1.0
"""Seconds for a worker that closed its connection to end, so that its exit status is known."""
LOOK_SECONDS = 1.0
"""Seconds between two checks for workers whose end was not noticed otherwise."""


class Question(NamedTuple):
    """A pending request to a worker."""

    what: str
    """The request in words."""
    limit: float
    """Maximum seconds per env."""
    begun: float
    """Time of sending, by the monotonic clock."""


class WorkerPool:
    """W worker processes, each with the envs that it owns."""

    def __init__(self, owned: Sequence[Sequence[int]]) -> None:
        self._owned = owned
        self.place: Callable[[int], tuple[int, int]] | None = None
        """Returns the running episode of an env and its last env step, once there are envs."""
        self.memory = new_memory()
        """File descriptor of the shared memory."""
        self._watch = WatchArray(self.memory, len(owned))
        self.offset = self._watch.nbytes
        """Number of used bytes at the beginning of the memory."""
        self.running: dict[int, WorkerProcess] = {}
        """The existing workers."""
        self.asked: dict[int, Question] = {}
        """Workers with a pending request, to the request."""
        self._by_fd: dict[int, WorkerProcess] = {}
        # the first watches everything, the second only the ends of workers
        self._poller, self._ends = select.poll(), select.poll()
        self._end_all = weakref.finalize(self, _end_all, os.getpid(), self.running, self.memory)

    @property
    def closed(self) -> bool:
        """Whether the pool is closed."""
        return not self._end_all.alive

    def start(self, index: int) -> None:
        """Starts a missing worker."""
        self._watch.env[index] = IDLE
        worker = WorkerProcess(index, len(self._owned), self._owned[index], self.memory)
        self.running[index] = worker
        for fd in worker.fds:
            self._by_fd[fd] = worker
            self._poller.register(fd, select.POLLIN)
        if worker.sentinel is not None:
            self._ends.register(worker.sentinel, select.POLLIN)

    def exchange(
        self, messages: Mapping[int, bytes], what: str, limit: float
    ) -> tuple[dict[int, bytes], list[Fault]]:
        """Sends a message to each worker and waits for all answers; no other answer may be pending.

        ``what`` names the request in words, ``limit`` is its maximum of seconds per env. See ``gather`` for results and errors.
        """
        self.ask(messages, what, limit)
        return self.gather(len(messages))

    def ask(self, messages: Mapping[int, bytes], what: str, limit: float) -> None:
        """Sends messages, whose answers ``gather`` returns; a worker with a pending answer must not be called."""
        question = Question(what, limit, time.monotonic())
        for index, data in messages.items():
            self.asked[index] = question
            with contextlib.suppress(OSError):  # its end is noticed when its answer is due
                self.running[index].link.sendall(data)

    def gather(self, count: int, patience: float = math.inf) -> tuple[dict[int, bytes], list[Fault]]:
        """Waits until the given number of workers have answered, or for the given seconds.

        Returns:
            The answer of each worker, and the faults of lost workers, including those without a request.

        Raises:
            RLFrameError: What a worker raised. The pool is closed then, and so it is by an interrupt.
        """
        try:
            return self._gather(max(len(self.asked) - count, 0), patience)
        except BaseException:  # unwanted answers may still arrive
            self.close()
            raise

    def _gather(self, left: int, patience: float) -> tuple[dict[int, bytes], list[Fault]]:
        """Waits until at most ``left`` answers are pending."""
        replies: dict[int, bytes] = {}
        faults: list[Fault] = []
        errors: dict[int, Exception] = {}
        end = time.monotonic() + patience
        deadline = min((asked.begun + asked.limit for asked in self.asked.values()), default=end)
        while len(self.asked) > left:
            rest = max(min(deadline, end) - time.monotonic(), 0.0)
            events, is_quiet = self._poll(math.ceil(1000 * min(rest, LOOK_SECONDS)), waits_for_all=left == 0)
            for fd in events:
                if fd not in self._by_fd:  # lost by an event of this very round
                    continue
                index = self._by_fd[fd].index
                received = self._receive(self._by_fd[fd], fd, faults)
                if received is not None and received[0] == ERROR:
                    errors[index] = from_bytes(received[1])
                elif received is not None:
                    replies[index] = received[1]
            now = time.monotonic()
            if now >= deadline or is_quiet:
                deadline = self._lose_silent(faults)
            if now >= end and is_quiet:
                break
        if errors:
            raise errors[min(errors)]
        return replies, faults

    def _poll(self, milliseconds: int, waits_for_all: bool) -> tuple[list[int], bool]:
        """Returns the file descriptors with events, and whether nothing happened for the given time.

        Where all answers are waited for, the last one wakes this process up, not each of them.
        """
        if not waits_for_all:
            events = [fd for fd, _ in self._poller.poll(milliseconds)]
            return events, not events
        links = [self.running[index].fds[0] for index in self.asked]
        self._ends.register(links[-1], select.POLLIN)
        events = [fd for fd, _ in self._ends.poll(milliseconds)]
        self._ends.unregister(links[-1])
        return events + [fd for fd in links if fd not in events], not events

    def _receive(self, worker: WorkerProcess, fd: int, faults: list[Fault]) -> tuple[int, bytes] | None:
        """Returns the kind and the body of an answer if there is one; a dead worker becomes a fault."""
        try:
            received = worker.receive()
            if received is None and fd == worker.sentinel:
                raise EOFError
        except EOFError:
            faults.append(self._lose(worker))
            return None
        if received is not None:
            del self.asked[worker.index]
        return received

    def _lose_silent(self, faults: list[Fault]) -> float:
        """Ends the workers that are dead or late, and returns the time of the next deadline."""
        now = time.monotonic()
        deadlines = []
        for index, asked in list(self.asked.items()):
            worker = self.running[index]
            due = max(asked.begun, float(self._watch.since[index])) + asked.limit
            if now < due and worker.ended is None:
                deadlines.append(due)
            else:
                faults.append(self._lose(worker, is_late=now >= due))
        return min(deadlines, default=now)

    def _lose(self, worker: WorkerProcess, is_late: bool = False) -> Fault:
        """Ends a dead or late worker, and returns the fault."""
        # forget the worker
        asked = self.asked.pop(worker.index, None)
        what, limit = (asked.what, asked.limit) if asked is not None else ('waiting', 0.0)
        del self.running[worker.index]
        for fd in worker.fds:
            del self._by_fd[fd]
            self._poller.unregister(fd)
        if worker.sentinel is not None:
            self._ends.unregister(worker.sentinel)
        # describe its end
        env = int(self._watch.env[worker.index])
        if not is_late:
            worker.leave(EXIT_SECONDS)
        how = worker.ended
        worker.close()
        if env == IDLE:
            hit = worker.env_id
            who = f'the worker of env {", ".join(map(str, hit))} (pid {worker.pid})'
        else:
            hit = (env,)
            who = f'env {env} (worker pid {worker.pid}) in {what}{self._how_far(env, what)}'
        others = tuple(own for own in worker.env_id if own not in hit)
        if not is_late:
            ending = 'closed its connection' if how is None else f'ended: {how or "without an error"}'
            return Fault(EnvCrashedError(f'{who} {ending}'), hit, others)
        key = 'step_timeout' if what == 'step()' else 'reset_timeout'
        error = EnvTimeoutError(
            f'{who} did not answer within {limit:g} s',
            where=f'env.manager.{key}',
            remedy='Raise it if the env is slow rather than stuck.',
        )
        return Fault(error, hit, others)

    def _how_far(self, env: int, what: str) -> str:
        if self.place is None or what not in ('step()', 'reset()'):
            return ''
        episode, step = self.place(env)
        return f', episode {episode}, step {step},' if what == 'step()' else f', episode {episode + 1},'

    def close(self) -> None:
        """Makes the workers close their envs, and kills late workers; may be called twice."""
        workers = list(self.running.values())
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.link.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in workers:
            worker.leave(max(deadline - time.monotonic(), 0.0))
        self._end_all()


def _end_all(owner: int, running: dict[int, WorkerProcess], memory: int) -> None:
    """Ends all workers, unless this is a fork of the process that they belong to."""
    if os.getpid() == owner:
        for worker in running.values():
            worker.close()
        running.clear()
        os.close(memory)
