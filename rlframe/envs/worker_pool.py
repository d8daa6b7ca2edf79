"""W worker processes: sends requests, waits with a time limit, and names those that are lost."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array, EnvSpec, IntArray
from rlframe.envs import contract
from rlframe.envs.base_env import BESIDE
from rlframe.envs.env_group import Answers, Counts, States
from rlframe.envs.env_worker import IDLE, SharedArrays, WatchArray, new_memory
from rlframe.envs.faults import Fault
from rlframe.envs.worker_process import ERROR, STEP, WorkerProcess, call, message, wait_for_exits
from rlframe.errors import EnvCrashedError, EnvStartError, EnvTimeoutError, IncompatibleError
from rlframe.utils.serialize import from_bytes, to_bytes

Make = Sequence[Callable[[], Any]]


class WorkerGroup:
    """N envs in W worker processes.

    A worker that is killed, ends or does not answer in time takes all its envs with it; a ``reset`` of one of them
    starts another worker. Where envs raise, the worker lives on.

    Args:
        make: Factory of each env, [N].
        worker_num: Number of workers, W <= N.
        step_timeout: Maximum seconds per env for a step.
        reset_timeout: Maximum seconds per env for creating, resetting or anything else.

    Raises:
        SerializationError: If a factory cannot be serialized for another process.
        EnvStartError: If a constructor fails or a worker cannot be started.
        IncompatibleError: If the envs differ, or have spaces that cannot be stored.
        EnvTimeoutError: If an env is not created in time.
    """

    spec: EnvSpec

    def __init__(self, make: Make, worker_num: int, step_timeout: float, reset_timeout: float) -> None:
        self._make = to_bytes(list(make), 'env_fn')
        self._step_timeout, self._reset_timeout = step_timeout, reset_timeout
        self._everyone = np.arange(len(make))
        self._owned = [part.tolist() for part in np.array_split(self._everyone, worker_num)]
        self._owner = np.repeat(np.arange(worker_num), [len(own) for own in self._owned])
        self._pool = WorkerPool(self._owned)
        self._remarks = contract.Remarks()
        self._which = 0  # the set of observations that the last step went to
        self._whole_steps: dict[bytes, bytes] = {}
        try:
            self._launch()
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        return self._pool.closed

    @property
    def counts(self) -> Counts:
        return self._arrays.counts

    def _launch(self) -> None:
        for index in range(len(self._owned)):
            self._pool.start(index)
        launch = {index: call('launch', self._make, own) for index, own in enumerate(self._owned)}
        try:
            answers = self._ask(launch, 'its constructor', self._reset_timeout)
        except EnvTimeoutError:
            raise
        except EnvCrashedError as error:
            raise EnvStartError(error.message) from error
        specs = [spec for index in sorted(answers) for spec in answers[index]]
        contract.check_spaces(specs, specs[0])
        self.spec = specs[0]
        if self.spec.action_space.shape is None:
            raise IncompatibleError(
                f'{self.spec.name}: actions of {self.spec.action_space!r} cannot be put into shared arrays',
                where='env.manager.type',
                remedy="env_manager.type='base' takes any action.",
            )
        env_num = len(self._everyone)
        self._arrays = SharedArrays(self._pool.memory, self._pool.offset, self.spec, env_num)
        self._arrays.counts.unchecked[:] = contract.CHECKED_STEPS
        self._pool.counts = self._arrays.counts
        attach = call('attach', self.spec, env_num)
        self._ask(dict.fromkeys(self._pool.running, attach), 'its constructor', self._reset_timeout)

    # methods that an env manager calls

    def place(self, env: int) -> tuple[int, int]:
        """Returns the running episode of an env and the last env step of it that was begun."""
        return int(self.counts.episodes[env]), int(self.counts.steps[env])

    def step(self, action: Array, env_id: IntArray) -> Answers:
        """Steps the given envs, [n], once each; see ``EnvGroup.step``."""
        self._which ^= 1
        whole = self._is_whole(env_id)
        messages = self._step_messages(action, env_id, whole)
        replies, faults = self._pool.exchange(messages, 'step()', self._step_timeout)
        told, more = self._unpacked(replies)
        faults = sorted(faults + more, key=first_env)
        infos = [told.get(env, {}) for env in env_id.tolist()] if told else ()
        arrays = self._arrays
        obs = arrays.obs[self._which]
        if whole:
            columns = arrays.reward.copy(), arrays.terminated.copy(), arrays.truncated.copy()
            return Answers(obs, *columns, infos, faults)
        columns = arrays.reward[env_id], arrays.terminated[env_id], arrays.truncated[env_id]
        return Answers(obs[env_id], *columns, infos, faults)

    def _is_whole(self, env_id: IntArray) -> bool:
        """Whether these are all envs, in order."""
        return len(env_id) == len(self._everyone) and bool((env_id == self._everyone).all())

    def _step_messages(self, action: Array, env_id: IntArray, whole: bool) -> dict[int, bytes]:
        """Writes actions into the shared arrays, and returns the requests for the workers."""
        arrays = self._arrays
        if (
            action.dtype.kind not in 'biuf'
            or action.dtype.itemsize > 8
            or action.shape[1:] != arrays.action_shape[1:]
        ):
            action = self._as_declared(action, env_id)
        dtype = action.dtype.char
        if whole:
            arrays.action(dtype)[:] = action
            return dict.fromkeys(self._pool.running, self._step_message(dtype))
        arrays.action(dtype)[env_id] = action
        return {
            index: self._step_message(dtype, None if own.tolist() == self._owned[index] else own)
            for index, own in self._by_worker(env_id).items()
        }

    def _unpacked(self, replies: Mapping[int, bytes]) -> tuple[dict[Any, Any], list[Fault]]:
        """Returns the results outside the shared arrays: infos by env, and faults; passes remarks on."""
        told: dict[Any, Any] = {}
        faults: list[Fault] = []
        for body in replies.values():
            if body:
                told.update(from_bytes(body))
                faults += told.pop('faults')
                for kind, text in told.pop('remarks'):
                    self._remarks.tell(kind, text)
        return told, faults

    def _as_declared(self, action: Array, env_id: IntArray) -> Array:
        """Converts actions of a type that the shared array does not support to the space's type.

        Raises:
            ActionError: If an action is not in the action space.
        """
        for env, own in zip(env_id.tolist(), action, strict=True):
            contract.check_action(own, self.spec, env)
        return np.asarray(action, self.spec.action_space.dtype)

    def _step_message(self, dtype: str, env_id: IntArray | None = None) -> bytes:
        head = bytes((self._which, ord(dtype)))
        if env_id is not None:
            return message(STEP, head + env_id.astype(np.int64).tobytes())
        if head not in self._whole_steps:
            self._whole_steps[head] = message(STEP, head)
        return self._whole_steps[head]

    def _by_worker(self, env_id: IntArray) -> dict[int, IntArray]:
        owner = self._owner[env_id]
        return {index: env_id[owner == index] for index in sorted(set(owner.tolist()))}

    def reset(self, env_id: IntArray, seeds: Sequence[int | None], obs: Array) -> list[Fault]:
        """Begins episodes, in new workers if there are none; see ``EnvGroup.reset``."""
        due = self._by_worker(env_id)
        replies, faults = self._pool.exchange(
            self._reset_messages(due, env_id, seeds), 'reset()', self._reset_timeout
        )
        for index in replies:
            obs[due[index]] = self._arrays.first_obs[due[index]]
        return sorted(faults + failed_resets(replies.values()), key=first_env)

    def _reset_messages(
        self, due: Mapping[int, IntArray], env_id: IntArray, seeds: Sequence[int | None]
    ) -> dict[int, bytes]:
        """Returns the requests that begin episodes; starts missing workers."""
        seed_of = dict(zip(env_id.tolist(), seeds, strict=True))
        messages = {}
        for index, own in due.items():
            listed = own.tolist()
            own_seeds = [seed_of[env] for env in listed]
            if index in self._pool.running:
                messages[index] = call('reset', listed, own_seeds)
            else:
                messages[index] = self._join_message(index, listed, own_seeds)
        return messages

    def _join_message(self, index: int, env_id: Sequence[int], seeds: Sequence[int | None]) -> bytes:
        """Starts a replacement of a lost worker, and returns its first request."""
        self._pool.start(index)
        return call('join', self._make, self._owned[index], self.spec, len(self._everyone), env_id, seeds)

    def capture(self) -> tuple[States, list[Fault]]:
        """Returns the states of the existing envs; see ``EnvGroup.capture``."""
        ask = dict.fromkeys(self._pool.running, call('capture'))
        replies, faults = self._pool.exchange(ask, 'saving', self._reset_timeout)
        states: States = {}
        for index in sorted(replies):
            states.update(from_bytes(replies[index]))
        return states, faults

    def restore(self, states: Mapping[int, Any]) -> dict[int, str]:
        """Restores envs to states that ``capture`` returned; see ``EnvGroup.restore``."""
        missing = [index for index in range(len(self._owned)) if index not in self._pool.running]
        joins = {index: self._join_message(index, (), ()) for index in missing}
        self._ask(joins, 'its start', self._reset_timeout)
        ask = {
            index: call('restore', {env: states[env] for env in own if env in states})
            for index, own in enumerate(self._owned)
        }
        answers = self._ask(ask, 'loading', self._reset_timeout)
        return {env: why for unfit in answers.values() for env, why in unfit.items()}

    def render(self, env: int) -> Array:
        """Returns a picture of an env."""
        index = int(self._owner[env])
        picture: Array = self._ask({index: call('render', env)}, 'render()', self._step_timeout)[index]
        return picture

    def close(self) -> None:
        """Closes the envs; kills those that do not close in time."""
        self._pool.close()

    def _ask(self, messages: Mapping[int, bytes], what: str, limit: float) -> dict[int, Any]:
        """Returns the workers' answers; raises their errors."""
        replies, faults = self._pool.exchange(messages, what, limit)
        self._must_be_none(faults)
        return {index: from_bytes(body) for index, body in replies.items()}

    def _must_be_none(self, faults: Sequence[Fault]) -> None:
        """Raises the errors that cannot be survived."""
        if faults:
            self.close()
            raise min(faults, key=first_env).error


def failed_resets(replies: Iterable[bytes]) -> list[Fault]:
    """Returns the envs that failed, from the workers' answers to resets."""
    return [fault for body in replies for fault in from_bytes(body)]


def first_env(fault: Fault) -> int:
    """Returns the sort key of faults."""
    return fault.env_id[0]


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
    """Time of sending, or of the last part of the answer, by the monotonic clock."""


class WorkerPool:
    """W worker processes.

    Args:
        owned: Envs of each worker.
    """

    def __init__(self, owned: Sequence[Sequence[int]]) -> None:
        self._owned = owned
        self.counts: Counts | None = None
        """The counters of each env, once they exist."""
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
        self._sending: set[int] = set()  # workers with a message that is not completely sent
        self._end_all = weakref.finalize(self, _end_all, os.getpid(), self.running, self.memory)

    @property
    def closed(self) -> bool:
        """Whether the pool is closed."""
        return not self._end_all.alive

    def start(self, index: int) -> None:
        """Starts a missing worker."""
        self._watch.env[index], self._watch.beside[index] = IDLE, 0
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
        """Sends messages and waits for all answers; no other answer may be pending.

        Args:
            messages: Workers to their messages.
            what: The request in words.
            limit: Maximum seconds per env.

        Returns:
            The answer of each worker, and the faults of lost workers, including those without a request.

        Raises:
            RLFrameError: What a worker raised. The pool is closed then, and so it is by an interrupt.
        """
        self.ask(messages, what, limit)
        return self.gather(len(messages))

    def ask(self, messages: Mapping[int, bytes], what: str, limit: float) -> None:
        """Sends messages, whose answers ``gather`` returns; a worker with a pending answer must not be called."""
        question = Question(what, limit, time.monotonic())
        for index, data in messages.items():
            self.asked[index] = question
            self._send(self.running[index], data)

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
            for fd, event in events:
                if fd not in self._by_fd:  # lost by an event of this very round
                    continue
                index = self._by_fd[fd].index
                received = self._hear(self._by_fd[fd], fd, event, faults)
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

    def _poll(self, milliseconds: int, waits_for_all: bool) -> tuple[list[tuple[int, int]], bool]:
        """Returns the file descriptors with events, and whether nothing happened for the given time.

        Where all answers are waited for, the last one wakes this process up, not each of them.
        """
        if not waits_for_all or self._sending:
            events = self._poller.poll(milliseconds)
            return events, not events
        links = [self.running[index].fds[0] for index in self.asked]
        self._ends.register(links[-1], select.POLLIN)
        events = self._ends.poll(milliseconds)
        self._ends.unregister(links[-1])
        noticed = {fd for fd, _ in events}
        return events + [(fd, select.POLLIN) for fd in links if fd not in noticed], not events

    def _send(self, worker: WorkerProcess, data: bytes) -> None:
        try:
            if not worker.send(data):
                self._sending.add(worker.index)
                self._poller.modify(worker.link, select.POLLIN | select.POLLOUT)
        except OSError:  # its end is noticed when its answer is due
            return

    def _hear(
        self, worker: WorkerProcess, fd: int, event: int, faults: list[Fault]
    ) -> tuple[int, bytes] | None:
        """Returns the kind and the body of an answer if it is complete; a dead worker becomes a fault."""
        before = worker.unread_num
        try:
            received = self._receive(worker, fd, event)
        except (EOFError, OSError):
            faults.append(self._lose(worker))
            return None
        if received is not None:
            del self.asked[worker.index]
        elif worker.unread_num > before:  # it has been sent, however late it is read
            self.asked[worker.index] = self.asked[worker.index]._replace(begun=time.monotonic())
        return received

    def _receive(self, worker: WorkerProcess, fd: int, event: int) -> tuple[int, bytes] | None:
        if event & select.POLLOUT and worker.flush():
            self._sending.discard(worker.index)
            self._poller.modify(worker.link, select.POLLIN)
        received = worker.receive()
        if received is None and fd == worker.sentinel:
            raise EOFError
        return received

    def _lose_silent(self, faults: list[Fault]) -> float:
        """Ends the workers that are dead or late, and returns the time of the next deadline."""
        now = time.monotonic()
        deadlines = []
        for index, asked in list(self.asked.items()):
            worker = self.running[index]
            due = max(asked.begun, float(self._watch.since[index])) + asked.limit
            if now < due and not worker.has_exited():
                deadlines.append(due)
            else:
                faults.append(self._lose(worker, is_late=now >= due))
        return min(deadlines, default=now)

    def _lose(self, worker: WorkerProcess, is_late: bool = False) -> Fault:
        """Ends a dead or late worker, and returns the fault."""
        asked = self.asked.pop(worker.index, None)
        what, limit = (asked.what, asked.limit) if asked is not None else ('waiting', 0.0)
        del self.running[worker.index]
        for fd in worker.fds:
            del self._by_fd[fd]
            self._poller.unregister(fd)
        self._sending.discard(worker.index)
        if worker.sentinel is not None:
            self._ends.unregister(worker.sentinel)
        env = int(self._watch.env[worker.index])
        ending = worker.end(0.0 if is_late else EXIT_SECONDS)
        if env == IDLE:
            who, hit = (
                f'the worker of env {", ".join(map(str, worker.env_id))} (pid {worker.pid})',
                worker.env_id,
            )
        else:
            beside = BESIDE[int(self._watch.beside[worker.index])]
            who = f'env {env} (worker pid {worker.pid}) in {beside or what}{self._how_far(env, what)}'
            hit = (env,)
        others = tuple(own for own in worker.env_id if own not in hit)
        if not is_late:
            return Fault(EnvCrashedError(f'{who} {ending}'), hit, others)
        key = 'step_timeout' if what == 'step()' else 'reset_timeout'
        error = EnvTimeoutError(
            f'{who} did not answer within {limit:g} s',
            where=f'env.manager.{key}',
            remedy='Raise it if the env is slow rather than stuck.',
        )
        return Fault(error, hit, others)

    def _how_far(self, env: int, what: str) -> str:
        if self.counts is None or what not in ('step()', 'reset()'):
            return ''
        episode, step = int(self.counts.episodes[env]), int(self.counts.steps[env])
        return f', episode {episode}, step {step},' if what == 'step()' else f', episode {episode + 1},'

    def close(self) -> None:
        """Makes the workers close their envs, and kills those that do not do so in time; may be called twice."""
        workers = list(self.running.values())
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.link.shutdown(socket.SHUT_WR)
        wait_for_exits(workers, CLOSE_SECONDS)
        self._end_all()


def _end_all(owner: int, running: dict[int, WorkerProcess], memory: int) -> None:
    """Ends all workers, unless this is a fork of the process that they belong to."""
    if os.getpid() == owner:
        for worker in running.values():
            worker.end()
        running.clear()
        os.close(memory)
