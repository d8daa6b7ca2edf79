"""CommWorker: what comm collectors and comm learners have in common: one loop that joins, works task by task, and leaves."""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
import threading
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from easydict import EasyDict

from rlframe._version import __version__
from rlframe.errors import ConfigError, CoordinatorLostError, MessageError, RequestRefusedError, RLFrameError
from rlframe.parallel.held_weights import TaskAbandoned
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Transport
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.run.machine import usable_cores
from rlframe.utils.every import seconds
from rlframe.utils.field import Configurable, Section, option

FAREWELL_SECONDS = 2.0
"""Seconds that a farewell is repeated while the coordinator does not answer."""
FIRST_SECONDS = 10.0
"""Seconds that the first request to join is repeated, at most, while nobody answers."""
REJOIN_PAUSE = 0.1
"""Seconds before a worker that was refused joins again."""

logger = logging.getLogger('rlframe.parallel')


STOP_SECONDS = 3.0
"""Seconds that a worker which was stopped waits for a coordinator that does not answer; it ends within 5 s."""
CLOSED, ENDED = 'it was closed', 'the coordinator ended the run'
"""Why a worker ends."""


class CommConfig(Section):
    """Options of every comm collector and comm learner."""

    timeout: float = seconds(60.0, 'time without an answer after which the coordinator counts as lost')
    close_timeout: float = seconds(15.0, 'longest wait of close() for the end of running work')
    transport: dict[str, Any] = option(
        {}, doc='options of the transport, such as token', may_change=True, reaches='network'
    )


class CommWorker(Configurable):
    """A worker that gets tasks from a coordinator over a transport.

    ``run`` works in the calling thread, ``start`` in one of its own; ``stop`` and ``close`` may be called by any thread.

    Args:
        cfg: Options.
        transport: Connection to the coordinator; by default it is created from ``address``.
        address: Address of the coordinator.
        name: Name of the worker, under which it comes back after a loss.
        fingerprint: Hash of the part of the config that all roles share.
    """

    _cfg: CommConfig
    role = ''
    """``'collector'`` or ``'learner'``."""
    transport_type = 'in_process'
    """Registered name of the transport that is created if none is given."""

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None = None,
        *,
        transport: Transport | None = None,
        address: Any = None,
        name: str = '',
        fingerprint: str = '',
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._transport, self._given_address = transport, address
        self._name = name or f'{self.role}-{os.getpid()}'
        self._logger = logging.getLogger(f'rlframe.{self.role}')
        place = os.getpid(), platform.node()[:64]
        self._introduction = m.Join(self.role, self._name, __version__, fingerprint, *place)
        self._membership: m.Joined | None = None
        self._refused_at = -1.0  # when it was first refused since it had work
        self._stopped = ''
        self._task: m.Task | None = None
        self._thread: threading.Thread | None = None
        self._beats: threading.Thread | None = None
        self._runner = -1
        self._ended = threading.Event()
        self._awake = threading.Event()
        self._has_left = threading.Event()
        self._error: BaseException | None = None

    # what a subclass defines

    @abstractmethod
    def _work_on(self, task: m.Task) -> m.Finished:
        """Works on a task; returns the report about it.

        Raises:
            TaskAbandoned: If it was abandoned.
        """

    @property
    @abstractmethod
    def progress(self) -> int:
        """What grows as it works, for signs of life."""

    @abstractmethod
    def _abandon(self, reason: str) -> None:
        """Ends the running task soon; called by any thread."""

    @abstractmethod
    def _release(self) -> None:
        """Closes envs and the like."""

    def _address(self) -> Any:
        """Returns the address of the coordinator if none was given to the constructor."""
        what = 'the address of a coordinator, or a transport'
        raise ConfigError(f'{type(self).__name__} needs {what}', where='address')

    def _connected(self) -> Transport:
        """Returns the connection to the coordinator, created at the first call."""
        if self._transport is None:
            kind: Any = TRANSPORT_REGISTRY.get(self.transport_type)
            address = self._address() if self._given_address is None else self._given_address
            self._transport = kind(dict(self._cfg.transport), address)
            if self._stopped == CLOSED:
                self._transport.hurry(STOP_SECONDS)
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

    def deal_with_resource(self) -> dict[str, int]:
        """Returns the number of CPU cores and GPUs that the worker may use; the name is DI-engine's."""
        return {'gpu': 0, 'cpu': usable_cores()}

    # running

    def start(self) -> None:
        """Begins to work in a thread; ``wait`` waits for its end."""
        if self._thread is None:
            name = f'rlframe-{self.role}'
            self._thread = threading.Thread(target=self._run_quietly, name=name, daemon=True)
            self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the work that ``start`` began, or for these seconds; returns whether it has ended.

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
            self._join()
            while not self._stopped:
                try:
                    self._work()
                except RequestRefusedError as refusal:
                    self._join(refusal)
        except BaseException as error:
            is_passing = isinstance(error, RequestRefusedError) and not error.is_fatal
            if self._stopped != CLOSED or not (is_passing or isinstance(error, CoordinatorLostError)):
                self._error = error
                raise
        finally:
            self._leave()

    def _work(self) -> None:
        """Asks for a task, works on it, and reports its end."""
        task, _ = self._ask(m.AskTask(), (m.Task, m.Wait))
        self._refused_at = -1.0
        if isinstance(task, m.Wait):
            if task.stop:
                self.stop(task.reason or ENDED)
            else:
                self._awake.wait(min(max(task.seconds, 0.0), self._cfg.timeout))
            return
        self._task = task
        try:
            self._tell(self._work_on(task))
        except TaskAbandoned as end:
            self._tell(m.Finished(task.task, False, str(end), {}))
        except (CoordinatorLostError, RequestRefusedError):
            raise
        except Exception as error:
            text = f'{type(error).__name__}: {error}'
            with suppress(RLFrameError):  # the coordinator may be gone, too
                self._tell(m.Finished(task.task, False, text[:1000], {}))
            raise
        finally:
            self._task = None

    # joining and leaving

    def _join(self, refusal: RequestRefusedError | None = None) -> None:
        """Joins the run, or joins again after a refusal, as by a restarted coordinator; begins to send signs of life.

        Raises:
            CoordinatorLostError: If the coordinator does not answer.
            RequestRefusedError: If it refuses this worker, and still does so after the timeout.
        """
        while True:
            if refusal is not None:
                self._endure(refusal)
            # a worker that never joined has probably been given a wrong address: it does not wait as long as others
            seconds = self._cfg.timeout
            if self._membership is None:
                seconds = min(seconds, FIRST_SECONDS)
            try:
                introduction = dataclasses.replace(self._introduction, produced=self.produced)
                self._membership, _ = self._ask(introduction, m.Joined, timeout=seconds)
                break
            except RequestRefusedError as error:
                refusal = error
        if self._beats is None:
            self._beats = threading.Thread(target=self._send_beats, name='rlframe-beats', daemon=True)
            self._beats.start()
        self._joined()

    def _endure(self, refusal: RequestRefusedError) -> None:
        """Waits before the next attempt to join; raises the refusal if there is to be none."""
        if refusal.is_fatal or self._stopped == CLOSED:
            raise refusal
        if self._refused_at < 0:
            self._refused_at = monotonic()
            logger.warning('%s joins again: %s', self._name, refusal)
        elif monotonic() - self._refused_at > self._cfg.timeout:
            raise refusal
        self._has_left.wait(REJOIN_PAUSE)

    def _send_beats(self) -> None:
        """Sends signs of life until the worker leaves, and obeys the orders that answer them."""
        assert self._membership is not None  # _join() starts this thread afterwards
        while not self._has_left.wait(self._membership.beat_interval):
            task = self._task
            beat = m.Beat('' if task is None else task.task, self.progress)
            try:
                orders, _ = self._ask(beat, m.Orders, timeout=max(1.0, self._membership.beat_interval))
                self._obey(orders, beat.task)
            except CoordinatorLostError:  # the working thread notices it at its next request
                continue
            except RLFrameError as error:  # after a refusal, the working thread joins again
                is_fatal = getattr(error, 'is_fatal', False)
                self._obey(m.Orders(is_fatal, True, -1, str(error)[: m.MAX_TEXT]))

    def _leave(self) -> None:
        """Releases everything, says farewell, and ends signs of life and connection; may be called twice."""
        error = self._error
        reason = self._stopped if error is None else f'{type(error).__name__}: {error}'
        try:
            self._release()
        finally:
            try:
                if self._membership is not None and not self._has_left.is_set():
                    self._has_left.set()
                    seconds = min(FAREWELL_SECONDS, self._cfg.timeout)
                    self._ask(m.Farewell(reason[: m.MAX_TEXT], self.produced), m.Orders, timeout=seconds)
            except RLFrameError as silence:
                logger.debug('no farewell: %s', silence)
            finally:
                self._has_left.set()
                self._disconnect()
                if self._beats is not None and self._beats is not threading.current_thread():
                    self._beats.join(FAREWELL_SECONDS)
                self._ended.set()

    def _disconnect(self) -> None:
        """Ends the connection, so that a request that waits for its reply fails."""
        if self._transport is not None:
            self._transport.close()

    def stop(self, reason: str = CLOSED) -> None:
        """Ends the work soon, without waiting; for signal handlers, too."""
        self._stopped = self._stopped or reason
        self._awake.set()
        if self._stopped == CLOSED and self._transport is not None:
            self._transport.hurry(STOP_SECONDS)
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
            self._disconnect()  # it may wait for a reply
            self._release()
            self._ended.wait(half)
        if self._thread is not None and self._ended.is_set():
            self._thread.join(half)

    # requests

    def _ask(
        self, message: m.Message, expected: Any, payload: Any = None, timeout: float | None = None
    ) -> tuple[Any, Any]:
        """Sends a request, for ``timeout`` seconds or those of the config; returns a reply of a type, and its payload.

        Raises:
            CoordinatorLostError: If no reply came in time.
            RequestRefusedError: If the coordinator refused it.
            MessageError: If the reply is of another type.
        """
        seconds = self._cfg.timeout if timeout is None else timeout
        reply = self._connected().request(message, payload, seconds)
        if not isinstance(reply.message, expected):
            asked, got = type(message).__name__, type(reply.message).__name__
            raise MessageError(f'the coordinator answered {asked} by {got}')
        return reply.message, reply.payload

    def _tell(self, message: m.Message, payload: Any = None) -> None:
        """Sends a message that is answered by orders, and obeys them."""
        orders, _ = self._ask(message, m.Orders, payload)
        self._obey(orders)

    def _obey(self, orders: m.Orders, task: str | None = None) -> None:
        """Obeys orders about a task, by default the current one; called by any thread."""
        if orders.stop:
            self.stop(orders.reason or ENDED)
        elif orders.abandon and self._task is not None and task in (None, self._task.task):
            self._abandon(orders.reason or 'the coordinator gave it up')
