"""CallingTransport: numbers requests and repeats them until they are answered; the shared body of all transports."""

from __future__ import annotations

import secrets
import threading
from abc import abstractmethod
from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Any

from rlframe.errors import CoordinatorLostError, MessageError, NotJoinedError, RequestRefusedError
from rlframe.transport.base import Reply, Transport
from rlframe.transport.envelope import MOST_AT_ONCE, Envelope, decode, encode
from rlframe.transport.messages import REJOIN, Join, Joined, Message, Refused
from rlframe.utils.field import Field

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two attempts: each pause is twice the one before."""
ATTEMPT_TIMEOUT = Field(
    10.0,
    range='(0, inf)',
    unit='seconds',
    may_change=True,
    doc='how long one attempt waits for a reply before the request is repeated',
)
"""Option ``attempt_timeout`` of transports whose attempts can wait in vain."""


class CallingTransport(Transport):
    """Sends each request again while it is not answered, with the same number.

    A subclass implements ``carry``, and ``pack`` and ``settle`` if its payloads do not travel with the envelope.

    Args:
        cfg: Options.
        where: Address of the coordinator, for errors.
    """

    config: dict[str, Any] = dict(
        timeout=Field(
            30.0,
            range='(0, inf)',
            unit='seconds',
            may_change=True,
            doc='how long a request is repeated while the coordinator does not answer',
        ),
    )

    def __init__(self, cfg: Mapping[str, Any] | None, where: str) -> None:
        self._cfg, self._where = self.resolve_config(cfg), where
        self._session, self._worker = secrets.token_hex(16), ''
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._next, self._unanswered = 0, set[int]()
        self._first_pause = FIRST_PAUSE
        self._hurried_at, self._patience = 0.0, inf
        self._silent_since: float | None = None  # when the first request began that came after the last reply

    def request(self, message: Message, payload: Any = None, timeout: float | None = None) -> Reply:
        """Sends a message and returns the reply; see ``Transport.request``."""
        end = monotonic() + (self._cfg.timeout if timeout is None else timeout)
        envelope = self._numbered(message, payload is not None)
        try:
            return self._accepted(message, self._answered(envelope, self.pack(envelope, payload), end))
        finally:
            with self._lock:
                self._unanswered.discard(envelope.seq)
            self.settle(envelope)

    def hurry(self, seconds: float) -> None:
        """Lets running and later requests together wait for so many seconds at most without a reply."""
        self._hurried_at, self._patience = monotonic(), seconds

    def close(self) -> None:
        """Ends the connection; requests that wait for a reply fail."""
        self._closed.set()

    @abstractmethod
    def carry(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        """Sends an envelope once and returns the reply.

        Args:
            envelope: The request.
            packed: What ``pack`` returned.
            seconds: How long to wait for the reply.

        Raises:
            OSError: If no reply came, such as ``ConnectionError`` and ``TimeoutError``; the request is repeated.
        """

    def pack(self, envelope: Envelope, payload: Any) -> Any:
        """Prepares a payload for all attempts of a request.

        Raises:
            PayloadError: If it cannot be sent.
        """
        return payload

    def settle(self, envelope: Envelope) -> None:
        """Cleans up after a request, answered or not."""

    def _numbered(self, message: Message, has_payload: bool) -> Envelope:
        # raises here if the coordinator would refuse it
        decode(encode(Envelope('', 0, message, has_payload)))
        with self._lock:
            if len(self._unanswered) >= MOST_AT_ONCE:
                raise MessageError(f'more than {MOST_AT_ONCE} requests at the same time', where=self._where)
            seq, self._next = self._next, self._next + 1
            self._unanswered.add(seq)
            sender = '' if isinstance(message, Join) else self._worker
            waiting = tuple(sorted(self._unanswered))
        return Envelope(sender, seq, message, has_payload, self._session, waiting)

    def _answered(self, envelope: Envelope, packed: Any, end: float) -> Reply:
        """Repeats a request until its reply comes or the time is over."""
        start, pause, cause = monotonic(), self._first_pause, 'no time was left for an attempt'
        if self._silent_since is None:
            self._silent_since = start

        def left() -> float:
            since = start if self._silent_since is None else self._silent_since
            return min(end, max(since, self._hurried_at) + self._patience) - monotonic()

        while not self._closed.is_set() and (seconds := left()) > 0:
            try:
                reply = self.carry(envelope, packed, seconds)
                self._silent_since = None
                return reply
            except OSError as error:
                cause = _said(error)
            self._closed.wait(min(pause, max(left(), 0.0)))
            pause = min(2 * pause, LONGEST_PAUSE)
        if self._closed.is_set():
            raise CoordinatorLostError('the connection was closed', where=self._where)
        raise CoordinatorLostError(
            f'the coordinator does not answer {type(envelope.message).__name__}: {cause}',
            where=self._where,
            remedy='Is it running, and is this its address?',
        )

    def _accepted(self, message: Message, reply: Reply) -> Reply:
        got = reply.message
        if isinstance(got, Refused):
            if got.remedy == REJOIN:
                raise NotJoinedError(got.message, where=self._where, remedy=got.remedy)
            error = RequestRefusedError(got.message, where=self._where, remedy=got.remedy)
            error.is_fatal = got.fatal
            raise error
        if isinstance(message, Join) and isinstance(got, Joined):
            with self._lock:
                self._worker = got.worker
        return reply


def _said(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
