"""CommWorker: what comm collectors and comm learners have in common: a thread, a membership, and a clean end."""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from easydict import EasyDict

from rlframe.errors import ConfigError, CoordinatorLostError, NoRoomError, RequestRefusedError, RLFrameError
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.transport.base import Transport
from rlframe.transport.messages import AskTask, Beat, Finished, Message, Orders, Task, Wait
from rlframe.utils.field import Configurable, Field, ResolvedConfig
from rlframe.worker.comm.membership import Membership, introduction
from rlframe.worker.parallel.held_weights import TaskAbandoned

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
