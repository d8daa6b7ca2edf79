"""CommWorker: what comm collectors and comm learners have in common: a thread, a membership, and a clean end."""

from __future__ import annotations

import logging
import os
import platform
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, TypeVar

from easydict import EasyDict

from rlframe._version import __version__
from rlframe.errors import (
    ConfigError,
    CoordinatorLostError,
    MessageError,
    NoRoomError,
    RequestRefusedError,
    RLFrameError,
)
from rlframe.parallel.held_weights import TaskAbandoned
from rlframe.parallel.transport.base import Transport
from rlframe.parallel.transport.messages import (
    MAX_TEXT,
    AskTask,
    Beat,
    Farewell,
    Finished,
    Join,
    Joined,
    Message,
    Orders,
    Task,
    Wait,
)
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.field import Configurable, Field, ResolvedConfig

M = TypeVar('M', bound=Message)

FAREWELL_SECONDS = 2.0
"""Seconds that a farewell is repeated while the coordinator does not answer."""
FIRST_SECONDS = 10.0
"""Seconds that the first request to join is repeated, at most, while nobody answers."""
REJOIN_PAUSE = 0.1
"""Seconds before a worker that was refused joins again."""

logger = logging.getLogger('rlframe.parallel')


class Membership:
    """Joins a run, sends requests and signs of life, joins again if it is no longer known, and leaves.

    Args:
        connect: Returns the connection to the coordinator, which ``leave`` closes.
        join: Introduces the worker.
        beat: Returns the sign of life, in another thread.
        obey: Obeys orders about a task, in another thread; None stands for the current task.
        timeout: Seconds without any answer after which the coordinator counts as lost.
    """

    def __init__(
        self,
        connect: Callable[[], Transport],
        join: Join,
        beat: Callable[[], Beat],
        obey: Callable[[Orders, str | None], None],
        timeout: float,
    ) -> None:
        self._connect, self._join, self._beat, self._obey = connect, join, beat, obey
        self._is_connected = False
        self._patience = inf
        self._timeout, self._heard_at, self._refused_at = timeout, monotonic(), -1.0
        self.joined: Joined | None = None
        """The coordinator's answer; None before the first."""
        self.lost: CoordinatorLostError | None = None
        """Why the coordinator counts as lost, if it was noticed between two requests."""
        self.left = threading.Event()
        """Set when the worker leaves, which ends all pauses."""
        self._beats: threading.Thread | None = None

    @property
    def worker(self) -> str:
        """The worker's id; empty before it has joined."""
        return self.joined.worker if self.joined is not None else ''

    def join(self, refusal: RequestRefusedError | None = None) -> Joined:
        """Joins the run.

        Args:
            refusal: Why the worker joins again: a coordinator that was restarted does not know its workers.

        Raises:
            CoordinatorLostError: If the coordinator does not answer.
            RequestRefusedError: If it refuses this worker, and still does so after the timeout.
        """
        while True:
            if refusal is not None:
                self._endure(refusal)
            # a worker that never joined has probably been given a wrong address: it does not wait as long as others
            seconds = self._timeout if self.joined is not None else min(self._timeout, FIRST_SECONDS)
            try:
                self.joined, _ = self.ask(self._join, Joined, timeout=seconds)
                break
            except RequestRefusedError as error:
                refusal = error
        if self._beats is None:
            self._beats = threading.Thread(target=self._send_beats, name='rlframe-beats', daemon=True)
            self._beats.start()
        return self.joined

    def _endure(self, refusal: RequestRefusedError) -> None:
        """Waits before the next attempt to join; raises the refusal if there is to be none."""
        if refusal.is_fatal or self._patience < inf:
            raise refusal
        if self._refused_at < 0:
            self._refused_at = monotonic()
            logger.warning('%s joins again: %s', self._join.name, refusal)
        elif monotonic() - self._refused_at > self._timeout:
            raise refusal
        self.left.wait(REJOIN_PAUSE)

    def accepted(self) -> None:
        """Takes notice that the coordinator gives work to this worker."""
        self._refused_at = -1.0

    def ask(
        self, message: Message, expected: type[M], payload: Any = None, timeout: float | None = None
    ) -> tuple[M, Any]:
        """Sends a request; returns the reply and its payload.

        Args:
            message: The request.
            expected: Type of the reply, or a tuple of types.
            payload: Payload of the request.
            timeout: Seconds that it is repeated, by default those of the constructor.

        Raises:
            CoordinatorLostError: If no reply came in time, or had not come for that long before.
            RequestRefusedError: If the coordinator refused it.
            MessageError: If the reply is of another type.
        """
        if self.lost is not None and not isinstance(message, Farewell):
            raise self.lost
        transport, self._is_connected = self._connect(), True
        seconds = min(self._timeout if timeout is None else timeout, self._patience)
        reply = transport.request(message, payload, seconds)
        self._heard_at = monotonic()
        if not isinstance(reply.message, expected):
            raise MessageError(
                f'the coordinator answered {type(message).__name__} by {type(reply.message).__name__}'
            )
        return reply.message, reply.payload

    def leave(self, reason: str, produced: int) -> None:
        """Says farewell, and ends the signs of life and the connection; may be called twice.

        Args:
            reason: Why the worker leaves.
            produced: Training samples or episodes that it produced.
        """
        if self.left.is_set():
            return
        self.left.set()
        try:
            if self.joined is not None:
                seconds = 0.0 if self.lost is not None else min(FAREWELL_SECONDS, self._timeout)
                self.ask(Farewell(reason[:MAX_TEXT], produced), Orders, timeout=seconds)
        except RLFrameError as error:
            logger.debug('no farewell: %s', error)
        finally:
            self.disconnect()
            if self._beats is not None and self._beats is not threading.current_thread():
                self._beats.join(FAREWELL_SECONDS)

    def hurry(self, seconds: float) -> None:
        """Lets running and later requests wait for so many seconds at most; for signal handlers, too."""
        self._patience = seconds
        if self._is_connected:
            self._connect().hurry(seconds)

    def disconnect(self) -> None:
        """Ends the connection, so that a request that waits for its reply fails."""
        if self._is_connected:
            self._connect().close()

    def _send_beats(self) -> None:
        assert self.joined is not None  # join() starts this thread afterwards
        while not self.left.wait(self.joined.beat_interval):
            beat, task = self._beat(), None
            try:
                orders, _ = self.ask(beat, Orders, timeout=max(1.0, self.joined.beat_interval))
                task = beat.task
            except CoordinatorLostError as error:
                if self.left.is_set() or monotonic() - self._heard_at < self._timeout:
                    continue
                self.lost = error
                orders = Orders(True, True, -1, str(error)[:MAX_TEXT])
            except RLFrameError as error:  # after a refusal, the working thread joins again
                orders = Orders(getattr(error, 'is_fatal', False), True, -1, str(error)[:MAX_TEXT])
            self._obey(orders, task)
            if self.lost is not None:
                return


def introduction(role: str, name: str, fingerprint: str, slots: int) -> Join:
    """Returns the message by which this process introduces a worker.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        fingerprint: Hash of the part of the config that all roles share.
        slots: Envs of a collector, or ranks of a learner.
    """
    return Join(role, name, __version__, fingerprint, os.getpid(), platform.node()[:64], slots)


STOP_SECONDS = 3.0
"""Seconds that a worker which was stopped waits for a coordinator that does not answer; it ends within 5 s."""
ROOM_PAUSE = 0.2
"""Seconds between two attempts to send, or to receive, what there is no room for."""
CLOSED, ENDED = 'it was closed', 'the coordinator ended the run'
"""Why a worker ends."""


class CommConfig(ResolvedConfig):
    """Options of every comm collector and comm learner."""

    timeout: float
    close_timeout: float
    transport: dict[str, Any]


class CommWorker(Configurable):
    """A worker that gets tasks from a coordinator over a transport.

    ``run`` works in the calling thread, ``start`` in one of its own; ``stop`` and ``close`` may be called by any thread.

    Args:
        cfg: Options.
        transport: Connection to the coordinator; by default it is created from ``address``.
        address: Address of the coordinator.
        name: Name of the worker, under which it comes back after a loss.
        fingerprint: Hash of the part of the config that all roles share.
        slots: Envs of a collector, or ranks of a learner.
    """

    _cfg: CommConfig
    config: dict[str, Any] = dict(
        timeout=Field(
            60.0,
            range='(0, inf)',
            unit='seconds',
            doc='without an answer, after which the coordinator counts as lost',
            may_change=True,
        ),
        close_timeout=Field(
            15.0,
            range='(0, inf)',
            unit='seconds',
            doc='that close() waits for the end of running work',
            may_change=True,
        ),
        transport=Field(
            {}, doc='options of the transport, such as token', may_change=True, reaches='network'
        ),
    )
    role = ''
    """``'collector'`` or ``'learner'``."""
    transport_type = 'in_process'
    """Registered name of the transport that is created if none is given."""

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None,
        *,
        transport: Transport | None = None,
        address: Any = None,
        name: str = '',
        fingerprint: str = '',
        slots: int = 1,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._transport, self._given_address = transport, address
        self._name = name or f'{self.role}-{os.getpid()}'
        self._logger = logging.getLogger(f'rlframe.{self.role}')
        join = introduction(self.role, self._name, fingerprint, slots)
        self._membership = Membership(self._connected, join, self._beat, self._obey, self._cfg.timeout)
        self._stopped = ''
        self._task: Task | None = None
        self._thread: threading.Thread | None = None
        self._runner, self._ended, self._awake = -1, threading.Event(), threading.Event()
        self._error: BaseException | None = None

    # what a subclass defines

    @abstractmethod
    def _work_on(self, task: Task) -> Finished | None:
        """Works on a task; returns the report about it.

        Raises:
            TaskAbandoned: If it was abandoned.
        """

    @abstractmethod
    def _beat(self) -> Beat:
        """Returns a sign of life."""

    @abstractmethod
    def _abandon(self, reason: str) -> None:
        """Ends the running task soon; called by any thread."""

    @abstractmethod
    def _release(self) -> None:
        """Closes envs and the like."""

    def _address(self) -> Any:
        """Returns the address of the coordinator if none was given to the constructor."""
        raise ConfigError(
            f'{type(self).__name__} needs the address of a coordinator, or a transport', where='address'
        )

    def _transport_options(self) -> dict[str, Any]:
        """Returns the options of the transport."""
        return dict(self._cfg.transport)

    def _connected(self) -> Transport:
        """Returns the connection to the coordinator, created at the first call."""
        if self._transport is None:
            kind: Any = TRANSPORT_REGISTRY.get(self.transport_type)
            address = self._address() if self._given_address is None else self._given_address
            self._transport = kind(self._transport_options(), address)
        return self._transport

    def _joined(self) -> None:
        """Takes notice that the worker has joined."""

    @property
    def why_ended(self) -> str:
        """Why it ends or has ended; empty while it works."""
        return self._stopped

    @property
    def produced(self) -> int:
        """Training samples or episodes produced so far, sent or not."""
        return 0

    @property
    def _unreported(self) -> int:
        """Training samples or episodes for the farewell: produced since it joined, or not confirmed before."""
        return self.produced

    # running

    def start(self) -> None:
        """Begins to work in a thread; ``wait`` waits for its end."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_quietly, name=f'rlframe-{self.role}', daemon=True
            )
            self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the work that ``start`` began; returns whether it has ended.

        Args:
            timeout: Seconds to wait at most; None: until it ends.

        Raises:
            Exception: What ended the work, if it was an error.
        """
        has_ended = self._ended.wait(timeout)
        if has_ended and self._error is not None:
            raise self._error
        return has_ended

    def _run_quietly(self) -> None:
        try:
            self.run()
        except BaseException as error:  # wait() raises it
            self._logger.error('%s: %s', self._name, error)

    def run(self) -> None:
        """Joins the run and works until the coordinator or ``stop`` ends it.

        Raises:
            CoordinatorLostError: If the coordinator does not answer for ``timeout`` seconds.
            RequestRefusedError: If it refuses this worker.
        """
        self._runner = threading.get_ident()
        try:
            self._membership.join()
            self._joined()
            while not self._stopped:
                self._work()
            if self._membership.lost is not None:
                raise self._membership.lost
        except BaseException as error:
            is_passing = isinstance(error, RequestRefusedError) and not error.is_fatal
            if self._stopped != CLOSED or not (is_passing or isinstance(error, CoordinatorLostError)):
                self._error = error
                raise
        finally:
            self._leave()

    def _leave(self) -> None:
        error = self._error
        try:
            self._release()
        finally:
            reason = self._stopped if error is None else f'{type(error).__name__}: {error}'
            self._membership.leave(reason, self._unreported)
            self._ended.set()

    def stop(self, reason: str = CLOSED) -> None:
        """Ends the work soon, without waiting; for signal handlers, too."""
        self._stopped = self._stopped or reason
        self._awake.set()
        if self._stopped == CLOSED:
            self._membership.hurry(STOP_SECONDS)
        self._abandon(reason)

    def close(self) -> None:
        """Ends the work, and waits until it has ended; may be called twice."""
        self.stop()
        if self._runner == threading.get_ident():
            return  # run() ends cleanly by itself
        if self._thread is None and self._runner == -1:  # it never ran
            self._leave()
            return
        half = self._cfg.close_timeout / 2
        if not self._ended.wait(half):
            self._membership.disconnect()  # it may wait for a reply
            self._release()
            self._ended.wait(half)
        if self._thread is not None and self._ended.is_set():
            self._thread.join(half)

    def _work(self) -> None:
        """Asks for a task and works on it."""
        try:
            answer, _ = self._ask(AskTask(), (Task, Wait))
            self._membership.accepted()
            if isinstance(answer, Wait):
                self._pause(answer)
            elif isinstance(answer, Task):
                self._task = answer
                self._report(answer)
        except RequestRefusedError as refusal:
            self._membership.join(refusal)
            self._joined()
        finally:
            self._task = None

    def _report(self, task: Task) -> None:
        """Works on a task and reports its end."""
        try:
            finished = self._work_on(task)
        except TaskAbandoned as end:
            finished = Finished(task.task, False, str(end), {})
        except (CoordinatorLostError, RequestRefusedError):
            raise
        except Exception as error:
            text = f'{type(error).__name__}: {error}'
            with suppress(RLFrameError):  # the coordinator may be gone, too
                self._tell(Finished(task.task, False, text[:1000], {}))
            raise
        if finished is not None:
            self._tell(finished)

    def _tell(self, finished: Finished) -> None:
        orders, _ = self._ask(finished, Orders)
        self._obey(orders)

    def _ask(self, message: Message, expected: Any, payload: Any = None) -> tuple[Any, Any]:
        """Asks the coordinator; while there is no room for the request or its answer, up to ``timeout``, asks again."""
        end = monotonic() + self._cfg.timeout
        while True:
            try:
                return self._membership.ask(message, expected, payload)
            except NoRoomError:
                if monotonic() >= end or self._stopped:
                    raise
                self._awake.wait(ROOM_PAUSE)

    def _pause(self, answer: Wait) -> None:
        """Waits as long as the coordinator says, or ends."""
        if answer.stop:
            self.stop(answer.reason or ENDED)
        else:
            self._awake.wait(min(max(answer.seconds, 0.0), self._cfg.timeout))

    def _obey(self, orders: Orders, task: str | None = None) -> None:
        """Obeys orders; called by any thread.

        Args:
            orders: The orders.
            task: The task that they are about; None: the current one.
        """
        if orders.stop:
            self.stop(orders.reason or ENDED)
        elif orders.abandon and self._task is not None and task in (None, self._task.task):
            self._abandon(orders.reason or 'the coordinator gave it up')
