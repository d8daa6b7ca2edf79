"""AnsweringServer: answers each request once, however often it comes; and the transport within one process."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

from rlframe.errors import CoordinatorLostError, MessageError, NoRoomError, RLFrameError
from rlframe.parallel.transport.base import Envelope, Handler, Reply, Server, Transport, decode, encode
from rlframe.parallel.transport.messages import MAX_TEXT, REJOIN, Join, Joined, Refused
from rlframe.registry import TRANSPORT_REGISTRY

R = TypeVar('R')

logger = logging.getLogger('rlframe.transport')


class AnsweringServer(Server, Generic[R]):
    """Calls the handler once for each request.

    A subclass calls ``answer`` for each envelope that arrives, and implements ``keep``, the form in which it keeps a
    reply for repeated requests.

    Args:
        cfg: Options.
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)
        self._handler: Handler | None = None
        self._replies: Replies[R] = Replies(self.release)

    def start(self, handler: Handler) -> None:
        self._handler = handler

    def forget(self, worker: str) -> None:
        self._replies.forget(worker)

    def close(self) -> None:
        self._handler = None
        self._replies.close()

    def answer(self, envelope: Envelope, load: Callable[[], Any]) -> R:
        """Returns the kept form of the reply to a request.

        Args:
            envelope: The request.
            load: Returns its payload; called at most once.

        Raises:
            MessageError: If the sender is unknown, or the request is a late copy of one that was answered.
            OSError: If the server is closed, or still handles an earlier copy; the request may be repeated.
        """
        handler = self._handler
        if handler is None:
            raise ConnectionError('the coordinator does not answer requests yet, or no longer')
        return self._replies.once(envelope, lambda: self._handle(handler, envelope, load))

    @abstractmethod
    def keep(self, envelope: Envelope, reply: Reply) -> R:
        """Returns the form in which a reply is kept, and sent as often as it is requested.

        Args:
            envelope: The request.
            reply: The reply.

        Raises:
            RLFrameError: If the reply cannot be sent; the worker is told so.
        """

    def admit(self, session: str, worker: str) -> None:
        """Admits a connection under the id that the handler gave to its worker; another one with that id is forgotten.

        Args:
            session: The connection.
            worker: The id.
        """
        if self._replies.session_of(worker) not in ('', session):
            self.forget(worker)
        self._replies.joined(session, worker)

    def release(self, kept: R) -> None:
        """Cleans up after a reply that is no longer kept."""

    def _handle(self, handler: Handler, envelope: Envelope, load: Callable[[], Any]) -> R:
        reply = _handled(handler, envelope, load)
        if isinstance(reply.message, Joined):
            self.admit(envelope.session, reply.message.worker)
        try:
            return self.keep(envelope, reply)
        except RLFrameError as error:
            logger.warning('a reply to %s cannot be sent: %s', envelope.sender, error)
            return self.keep(envelope, refusal(error))


def _handled(handler: Handler, envelope: Envelope, load: Callable[[], Any]) -> Reply:
    try:
        return handler(envelope, load())
    except RLFrameError as error:
        return refusal(error)
    except Exception as error:  # the worker has to be told, and the other workers are still served
        kind = type(envelope.message).__name__
        logger.exception('the handler failed on %s of %r', kind, envelope.sender)
        text = f'the coordinator failed on this {kind}: {type(error).__name__}: {error}'
        return Reply(Refused(text[:MAX_TEXT], 'See the log of the coordinator.', True))


def refusal(error: RLFrameError) -> Reply:
    """Returns the reply that tells a worker about an error; it may go on after a ``MessageError`` or a ``NoRoomError``."""
    is_fatal = not isinstance(error, MessageError | NoRoomError)
    return Reply(Refused(said(error)[:MAX_TEXT], error.remedy[:MAX_TEXT], is_fatal))


def said(error: RLFrameError) -> str:
    """Returns the text of an error without its remedy."""
    return str(error).removesuffix(f' {error.remedy}') if error.remedy else str(error)


class _Session(Generic[R]):
    """The connection of a worker."""

    def __init__(self) -> None:
        self.worker = ''
        self.entries: dict[int, Future[R]] = {}  # requests that are or were handled
        self._newest, self._unanswered = -1, frozenset[int]()

    def admit(self, envelope: Envelope) -> list[Future[R]]:
        """Notes a new request; returns the entries whose replies nobody will ask for again.

        Raises:
            MessageError: If it is a late copy of a request that has been answered.
        """
        seq = envelope.seq
        if seq > self._newest:
            self._newest, self._unanswered = seq, frozenset(envelope.unanswered)
        elif seq not in self._unanswered:
            raise MessageError(f'request {seq} is a late copy of one that was answered', where='seq')
        answered = [n for n in self.entries if n < self._newest and n not in self._unanswered]
        return [self.entries.pop(n) for n in answered]


class Replies(Generic[R]):
    """Lets every request be handled at most once, and keeps each reply until its receiver has it.

    Requests are identified by the connection that they come from and their number. A repeated request gets the reply of
    the first one, and waits for it if that is still being handled.

    Args:
        release: Called with each reply that is no longer kept.
        patience: Seconds that a repeated request waits at most.
    """

    def __init__(self, release: Callable[[R], None] | None = None, patience: float = 1.0) -> None:
        self._release, self._patience = release or (lambda reply: None), patience
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session[R]] = {}
        self._workers: dict[str, str] = {}

    def once(self, envelope: Envelope, handle: Callable[[], R]) -> R:
        """Returns the reply to a request, from ``handle`` if it is the first with its number.

        Args:
            envelope: The request.
            handle: Handles it; raises nothing that is to be answered.

        Raises:
            MessageError: If the sender has not joined or was forgotten, or the request is a late copy.
            TimeoutError: If the first request with that number is still being handled; the caller may ask again.
        """
        with self._lock:
            entry, is_new, dropped = self._entry(envelope)
        self._drop(dropped)
        if is_new:
            try:
                entry.set_result(handle())
            except BaseException:
                entry.cancel()
                raise
        try:
            return entry.result(self._patience)
        except (TimeoutError, CancelledError):
            raise TimeoutError(f'request {envelope.seq} is still being handled') from None

    def joined(self, session: str, worker: str) -> None:
        """Admits the worker of a connection under an id that no other connection has."""
        with self._lock:
            known = self._sessions.setdefault(session, _Session())
            self._workers.pop(known.worker, None)
            known.worker = worker
            self._workers[worker] = session

    def session_of(self, worker: str) -> str:
        """Returns the connection of a worker; an empty text if there is none."""
        return self._workers.get(worker, '')

    def forget(self, worker: str) -> None:
        """Drops all replies to a worker, and refuses its further requests; an unknown worker is ignored."""
        with self._lock:
            session = self._sessions.get(self._workers.pop(worker, ''))
            dropped: list[Future[R]] = []
            if session is not None:
                session.worker = ''
                dropped = [session.entries.pop(n) for n, entry in [*session.entries.items()] if entry.done()]
        self._drop(dropped)

    def close(self) -> None:
        """Drops all replies."""
        with self._lock:
            dropped = [entry for session in self._sessions.values() for entry in session.entries.values()]
            self._sessions, self._workers = {}, {}
        self._drop(dropped)

    def _entry(self, envelope: Envelope) -> tuple[Future[R], bool, list[Future[R]]]:
        """Returns the entry of a request, whether it is new, and the entries that are no longer needed."""
        session = self._sessions.get(envelope.session)
        if session is not None and envelope.seq in session.entries:
            return session.entries[envelope.seq], False, []
        if isinstance(envelope.message, Join):
            if session is None:
                session = self._sessions[envelope.session] = _Session()
        elif session is None or not session.worker:
            raise MessageError('the coordinator does not know this worker', remedy=REJOIN)
        elif session.worker != envelope.sender:
            raise MessageError('this id belongs to another connection', where='sender', remedy=REJOIN)
        dropped = session.admit(envelope)
        entry = session.entries[envelope.seq] = Future()
        return entry, True, dropped

    def _drop(self, entries: list[Future[R]]) -> None:
        """Releases replies, those of requests that are still being handled as soon as there are any."""
        for entry in entries:
            entry.add_done_callback(lambda done: None if done.cancelled() else self._release(done.result()))


MOST_NAMES = 8
"""Names whose newest payload is kept for the next worker that asks."""


class Newest(Generic[R]):
    """Packs a payload that several workers get when the first one asks, and keeps the newest of each name.

    Args:
        pack: Packs a payload.
        drop: Cleans up after a packed payload that is no longer kept.
    """

    def __init__(self, pack: Callable[[Any], R], drop: Callable[[R], None] = lambda packed: None) -> None:
        self._pack, self._drop = pack, drop
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, R]] = {}  # the one that was asked for last comes last

    def get(self, name: str, payload: Any) -> R:
        """Returns a payload, packed; a different object under the same name takes its place."""
        with self._lock:
            found = self._kept.pop(name, None)
            if found is not None and found[0] is not payload:
                self._drop(found[1])
                found = None
            self._kept[name] = found = found or (payload, self._pack(payload))
            if len(self._kept) > MOST_NAMES:
                self._drop(self._kept.pop(next(iter(self._kept)))[1])
            return found[1]

    def clear(self) -> None:
        """Drops all that is kept."""
        with self._lock:
            while self._kept:
                self._drop(self._kept.popitem()[1][1])


class InProcessServer(AnsweringServer[Reply]):
    """Answers requests in the thread that sends them; payloads are passed on without a copy."""

    _is_closed = False

    @property
    def address(self) -> str:
        """A name for errors: workers of other processes cannot join."""
        return 'in_process'

    def connect(self, cfg: Mapping[str, Any] | None = None) -> InProcessTransport:
        return InProcessTransport(cfg, self)

    def keep(self, envelope: Envelope, reply: Reply) -> Reply:
        """Checks a reply as if it had been sent."""
        sent = Envelope('', envelope.seq, reply.message, reply.payload is not None)
        return Reply(decode(encode(sent)).message, reply.payload)

    def take(self, envelope: Envelope, payload: Any) -> Reply:
        """Answers a request.

        Raises:
            CoordinatorLostError: If this server is closed, as it can never be reached again.
            OSError: If it has not started, or still handles an earlier copy of the request.
        """
        if self._is_closed:
            raise CoordinatorLostError('the coordinator has stopped', where=self.address)
        try:
            return self.answer(envelope, lambda: payload)
        except MessageError as error:
            return refusal(error)

    def close(self) -> None:
        self._is_closed = True
        super().close()


@TRANSPORT_REGISTRY.register('in_process')
class InProcessTransport(Transport):
    """A connection to a server of the same process.

    Args:
        cfg: Options.
        address: The server.
    """

    server_cls = InProcessServer

    def __init__(self, cfg: Mapping[str, Any] | None, address: InProcessServer) -> None:
        super().__init__(cfg, address.address)
        self._server = address

    def carry(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        """Calls the server in this thread; ``seconds`` do not interrupt a handler."""
        return self._server.take(envelope, packed)
