"""Transport and Server: the two ends of every transport."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rlframe.transport.envelope import Envelope
from rlframe.transport.messages import Message
from rlframe.utils.field import Configurable


class Reply(NamedTuple):
    """The answer to a request."""

    message: Message
    payload: Any = None
    """A ``Batch``, or a tree of dicts and lists with arrays and tensors; None if there is none."""
    shared: str = ''
    """Name of a payload that several workers get, each time as the same object, which nobody changes: a transport may
    pack it once, and keep it until there is another one of this name. Empty for all other payloads."""


Handler = Callable[[Envelope, Any], Reply]
"""Handles a request and its payload; called by several threads, once for each request.

It may raise: ``MessageError`` if it refuses the request, any other ``RLFrameError`` if the worker has to end.
"""


class Transport(Configurable):
    """A worker's connection to its coordinator; safe to use from several threads.

    It numbers the requests, and repeats one with the same number while no reply comes: the coordinator handles each at
    most once. One that a worker creates takes its options and the address: ``cls(cfg, address)``.
    """

    server_cls: type[Server]
    """The other end."""

    @abstractmethod
    def request(self, message: Message, payload: Any = None, timeout: float | None = None) -> Reply:
        """Sends a message and returns the reply.

        Args:
            message: The message. ``Joined``, the reply to ``Join``, gives the worker its id.
            payload: Arrays that travel with it: a ``Batch``, or a tree of dicts and lists with arrays and tensors.
            timeout: Seconds until the request, repetitions included, is given up; by default the option ``timeout``.

        Raises:
            CoordinatorLostError: If no reply came in time; with the address and the last cause.
            RequestRefusedError: If the coordinator refused the request; with its reason and remedy. If ``is_fatal``,
                the worker has to end.
            NotJoinedError: If the coordinator does not know this worker, or no longer; it may join again.
            MessageError: If a field of the message does not have its declared type; nothing was sent.
            PayloadError: If the payload cannot be sent, since it is too large or has an unsupported type; nothing was
                sent. If there is only no room for it now, it is a ``NoRoomError``.
        """

    def hurry(self, seconds: float) -> None:
        """Lets running and later requests together wait for so many seconds at most without a reply.

        A signal handler may call it.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the connection; may be called twice."""


class Server(Configurable):
    """The coordinator's end of a transport."""

    @abstractmethod
    def start(self, handler: Handler) -> None:
        """Begins to answer requests, each by one call of the handler.

        Errors that a handler raises are answered by ``Refused``. A ``Joined`` that it returns admits the sender under
        the id in it: requests of anyone else, other than ``Join``, are refused without a call of the handler.
        """

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

    @abstractmethod
    def forget(self, worker: str) -> None:
        """Deletes everything that is kept for a worker that was lost or has left: replies, files, payloads.

        Its further requests are refused until it joins again. May be called by a handler, and for an unknown worker.
        """

    @abstractmethod
    def close(self) -> None:
        """Stops answering and deletes all kept replies and files; may be called twice."""
