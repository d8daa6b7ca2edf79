"""Server: answers each request once, however often it comes; and the transport within one process."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

from rlframe.errors import CoordinatorLostError, MessageError, RLFrameError
from rlframe.parallel.transport.base import Envelope, Handler, Reply, Transport, decode, encode
from rlframe.parallel.transport.messages import MAX_TEXT, REJOIN, Join, Joined, Refused
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.field import Configurable

logger = logging.getLogger('rlframe.transport')


class Server(Configurable):
    """The coordinator's end of a transport, which calls the handler once for each request.

    A subclass calls ``answer`` for each envelope that arrives, and implements ``connect``, ``address`` and ``pack``, the
    form in which it keeps the payload of a reply for repeated requests.

    Args:
        cfg: Options.
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)
        self._handler: Handler | None = None
        self._replies = Replies()

    def start(self, handler: Handler) -> None:
        """Begins to answer requests, each by one call of the handler.

        Errors that a handler raises are answered by ``Refused``. A ``Joined`` that it returns admits the sender under
        the id in it: requests of anyone else, other than ``Join``, are refused without a call of the handler.
        """
        self._handler = handler

    @abstractmethod
    def connect(self, cfg: Mapping[str, Any] | None = None) -> Transport:
        """Returns the connection of a worker in this process.

        Args:
            cfg: Options of the transport; those that both ends share are the server's by default.
        """

    @property
    @abstractmethod
    def address(self) -> str:
        """What a worker needs to join: for ``-m collector --join ADDRESS``."""

    def check_joinable(self) -> None:
        """Checks that workers can join that this process does not start.

        Raises:
            ConfigError: If they cannot.
        """

    def worker_options(self) -> dict[str, Any]:
        """Returns the options of the transport that a worker needs to connect, such as a token."""
        return {}

    def forget(self, worker: str) -> None:
        """Deletes the replies that are kept for a worker that was lost or has left.

        Its further requests are refused until it joins again. May be called by a handler, and for an unknown worker.
        """
        self._replies.forget(worker)

    def close(self) -> None:
        """Stops answering and deletes all kept replies; may be called twice."""
        self._handler = None
        self._replies.close()

    def answer(self, envelope: Envelope, load: Callable[[], Any]) -> Reply:
        """Returns the reply to a request, with its payload packed.

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

    def pack(self, reply: Reply) -> Any:
        """Returns the payload of a reply in the form in which it is kept, and sent as often as it is requested.

        Raises:
            PayloadError: If it cannot be sent; the worker is told so.
        """
        return reply.payload

    def _handle(self, handler: Handler, envelope: Envelope, load: Callable[[], Any]) -> Reply:
        reply = _handled(handler, envelope, load)
        if isinstance(reply.message, Joined):
            self._replies.joined(envelope.session, reply.message.worker)
        try:
            # raises here if the worker would refuse it
            sent = decode(encode(Envelope('', envelope.seq, reply.message, reply.payload is not None)))
            return Reply(sent.message, self.pack(reply))
        except RLFrameError as error:
            logger.warning('a reply to %s cannot be sent: %s', envelope.sender, error)
            return refusal(error)


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
    """Returns the reply that tells a worker about an error; it may go on after a ``MessageError``."""
    is_fatal = not isinstance(error, MessageError)
    return Reply(Refused(said(error)[:MAX_TEXT], error.remedy[:MAX_TEXT], is_fatal))


def said(error: RLFrameError) -> str:
    """Returns the text of an error without its remedy."""
    return str(error).removesuffix(f' {error.remedy}') if error.remedy else str(error)


class _Session:
    """The connection of a worker."""

    def __init__(self) -> None:
        self.worker = ''
        self.newest: dict[int, tuple[int, Future[Reply] | None]] = {}
        """The newest request on each lane: its number, and its reply unless that was dropped."""


class Replies:
    """Lets every request be handled at most once, and keeps each reply until the next request on its lane.

    Requests are identified by the connection that they come from, their lane and their number. A repeated request gets
    the reply of the first one, and waits for it if that is still being handled.

    Args:
        patience: Seconds that a repeated request waits at most.
    """

    def __init__(self, patience: float = 1.0) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._workers: dict[str, str] = {}

    def once(self, envelope: Envelope, handle: Callable[[], Reply]) -> Reply:
        """Returns the reply to a request, from ``handle`` if it is the first with its number.

        Args:
            envelope: The request.
            handle: Handles it; raises nothing that is to be answered.

        Raises:
            MessageError: If the sender has not joined or was forgotten, or the request is a late copy.
            TimeoutError: If the first request with that number is still being handled; the caller may ask again.
        """
        with self._lock:
            session = self._session_of(envelope)
            newest, entry = session.newest.get(envelope.lane, (-1, None))
            is_new = envelope.seq > newest
            if is_new:
                entry = Future[Reply]()
                session.newest[envelope.lane] = envelope.seq, entry
            elif envelope.seq < newest or entry is None:
                raise MessageError(f'request {envelope.seq} is a late copy of an earlier one', where='seq')
        assert entry is not None
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
        """Admits the worker of a connection under an id; another connection with that id is forgotten."""
        if self._workers.get(worker, session) != session:
            self.forget(worker)
        with self._lock:
            known = self._sessions.setdefault(session, _Session())
            self._workers.pop(known.worker, None)
            known.worker = worker
            self._workers[worker] = session

    def forget(self, worker: str) -> None:
        """Drops all replies to a worker, and refuses its further requests; an unknown worker is ignored."""
        with self._lock:
            session = self._sessions.get(self._workers.pop(worker, ''))
            if session is not None:
                session.worker = ''
                for lane, (seq, entry) in session.newest.items():
                    if entry is not None and entry.done():
                        session.newest[lane] = seq, None

    def close(self) -> None:
        """Drops all replies."""
        with self._lock:
            self._sessions, self._workers = {}, {}

    def _session_of(self, envelope: Envelope) -> _Session:
        """Returns the connection of a request; that of the first request to join is new."""
        session = self._sessions.get(envelope.session)
        if session is not None and session.newest.get(envelope.lane, (-1, None))[0] == envelope.seq:
            return session
        if isinstance(envelope.message, Join):
            return session or self._sessions.setdefault(envelope.session, _Session())
        if session is None or not session.worker:
            raise MessageError('the coordinator does not know this worker', remedy=REJOIN)
        if session.worker != envelope.sender:
            raise MessageError('this id belongs to another connection', where='sender', remedy=REJOIN)
        return session


class InProcessServer(Server):
    """Answers requests in the thread that sends them; payloads are passed on without a copy."""

    _is_closed = False

    @property
    def address(self) -> str:
        """A name for errors: workers of other processes cannot join."""
        return 'in_process'

    def connect(self, cfg: Mapping[str, Any] | None = None) -> InProcessTransport:
        return InProcessTransport(cfg, self)

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
