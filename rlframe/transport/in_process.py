"""The transport between threads of one process, for tests and for debugging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.errors import CoordinatorLostError, MessageError
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.transport.answering import AnsweringServer, refusal
from rlframe.transport.base import Reply
from rlframe.transport.calling import CallingTransport
from rlframe.transport.envelope import Envelope, decode, encode


class InProcessServer(AnsweringServer[Reply]):
    """Answers requests in the thread that sends them; payloads are passed on without a copy."""

    _is_closed = False

    @property
    def address(self) -> str:
        """A name for errors: workers of other processes cannot join."""
        return 'in_process'

    def connect(self, cfg: Mapping[str, Any] | None = None) -> InProcessTransport:
        """Returns a connection to this server."""
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
        """Stops answering."""
        self._is_closed = True
        super().close()


@TRANSPORT_REGISTRY.register('in_process')
class InProcessTransport(CallingTransport):
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
