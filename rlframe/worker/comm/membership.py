"""Membership: a worker's place in a run, from joining it to the farewell."""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, TypeVar

from rlframe._version import __version__
from rlframe.errors import CoordinatorLostError, MessageError, RequestRefusedError, RLFrameError
from rlframe.transport.base import Transport
from rlframe.transport.messages import MAX_TEXT, Beat, Farewell, Join, Joined, Message, Orders

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
