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
from rlframe.parallel.transport.messages import MAX_TEXT, Refused
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.field import Configurable

logger = logging.getLogger('rlframe.transport')

PATIENCE = 1.0
"""Seconds that a repeated request waits, at most, for the reply to the first one."""


class Server(Configurable):
    """The coordinator's end of a transport, which calls the handler at most once for each request.

    Requests are identified by the connection that they come from, their lane and their number. A repeated request gets
    the reply to the first one, which is kept until the next request on its lane. A subclass calls ``answer`` for each envelope
    that arrives, and implements ``connect``, ``address`` and ``pack``, the form in which it keeps the payload of a reply.
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)
        self._handler: Handler | None = None
        self._lock = threading.Lock()
        # the newest request on each lane of each connection: its number, and its reply unless that was dropped
        self._newest: dict[tuple[str, int], tuple[int, Future[Reply] | None]] = {}

    def start(self, handler: Handler) -> None:
        """Begins to answer requests, each by one call of the handler, or by ``Refused`` if that raises an error."""
        self._handler = handler

    @abstractmethod
    def connect(self, cfg: Mapping[str, Any] | None = None) -> Transport:
        """Returns the connection of a worker in this process; options that both ends share are the server's by default."""

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

    def forget(self, session: str) -> None:
        """Drops the replies that are kept for a connection whose worker was lost or has left; a handler may call it."""
        with self._lock:
            for lane, (seq, reply) in self._newest.items():
                if lane[0] == session and reply is not None and reply.done():
                    self._newest[lane] = seq, None

    def close(self) -> None:
        """Stops answering and drops all kept replies; may be called twice."""
        self._handler = None
        with self._lock:
            self._newest.clear()

    def answer(self, envelope: Envelope, load: Callable[[], Any]) -> Reply:
        """Returns the reply to a request, with its payload packed; ``load`` returns that of the request, at most once.

        A late copy of a request that was answered is refused.

        Raises:
            OSError: If the server is closed, or still handles an earlier copy; the request may be repeated.
        """
        handler = self._handler
        lane = (envelope.session, envelope.lane)
        if handler is None:
            raise ConnectionError('the coordinator does not answer requests yet, or no longer')
        with self._lock:
            newest, reply = self._newest.get(lane, (-1, None))
            is_new = envelope.seq > newest
            if is_new:
                reply = Future[Reply]()
                self._newest[lane] = envelope.seq, reply
            elif envelope.seq < newest or reply is None:
                what = f'request {envelope.seq} is a late copy of an earlier one'
                return refusal(MessageError(what, where='seq'))
        assert reply is not None
        if is_new:
            try:
                reply.set_result(self._handle(handler, envelope, load))
            except BaseException:
                reply.cancel()
                raise
        try:
            return reply.result(PATIENCE)
        except (TimeoutError, CancelledError):
            raise TimeoutError(f'request {envelope.seq} is still being handled') from None

    def pack(self, reply: Reply) -> Any:
        """Returns the payload of a reply in the form in which it is kept, and sent as often as it is requested.

        Raises:
            PayloadError: If it cannot be sent; the worker is told so.
        """
        return reply.payload

    def _handle(self, handler: Handler, envelope: Envelope, load: Callable[[], Any]) -> Reply:
        reply = _handled(handler, envelope, load)
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
        return self.answer(envelope, lambda: payload)

    def close(self) -> None:
        self._is_closed = True
        super().close()


@TRANSPORT_REGISTRY.register('in_process')
class InProcessTransport(Transport):
    """A connection to a server of the same process, which is its address."""

    server_cls = InProcessServer

    def __init__(self, cfg: Mapping[str, Any] | None, address: InProcessServer) -> None:
        super().__init__(cfg, address.address)
        self._server = address

    def carry(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        """Calls the server in this thread; ``seconds`` do not interrupt a handler."""
        return self._server.take(envelope, packed)
