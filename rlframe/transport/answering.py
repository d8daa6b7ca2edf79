"""AnsweringServer: handles every request at most once and admits workers; the shared body of all servers."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from rlframe.errors import MessageError, NoRoomError, RLFrameError
from rlframe.transport.base import Handler, Reply, Server
from rlframe.transport.envelope import Envelope
from rlframe.transport.messages import MAX_TEXT, Joined, Refused
from rlframe.transport.once import Replies

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
        """Begins to answer requests; see ``Server.start``."""
        self._handler = handler

    def forget(self, worker: str) -> None:
        """Deletes everything that is kept for a worker; see ``Server.forget``."""
        self._replies.forget(worker)

    def close(self) -> None:
        """Stops answering."""
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
