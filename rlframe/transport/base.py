"""Transport and Server: the two ends of every transport."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from rlframe.transport.envelope import Envelope
from rlframe.transport.messages import Message
from rlframe.utils.field import Configurable


class Reply(NamedTuple):
    """The answer to a request."""

    message: Message
    payload: Any = None
    """A ``Batch``, or a tree of dicts and lists with arrays and tensors; None if there is none."""


Handler = Callable[[Envelope, Any], Reply]
"""Handles a request and its payload; called by several threads, once for each request."""


class Transport(Configurable):
    """A worker's connection to its coordinator; safe to use from several threads.

    It numbers the requests, and repeats one with the same number while no reply comes: the coordinator handles each at
    most once.
    """

    @abstractmethod
    def request(self, message: Message, payload: Any = None, timeout: float | None = None) -> Reply:
        """Sends a message and returns the reply.

        Args:
            message: The message. ``Joined``, the reply to ``Join``, gives the worker its id.
            payload: Arrays that travel with it: a ``Batch``, or a tree of dicts and lists with arrays and tensors.
            timeout: Seconds until the request, repetitions included, is given up; by default the option ``timeout``.

        Raises:
            CoordinatorLostError: If no reply came in time; with the address and the last cause.
            RequestRefusedError: If the coordinator refused the request; with its reason and remedy.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the connection; may be called twice."""


class Server(Configurable):
    """The coordinator's end of a transport."""

    @abstractmethod
    def start(self, handler: Handler) -> None:
        """Begins to answer requests, each by one call of the handler.

        A handler may raise ``MessageError`` or another ``RLFrameError``, which is answered by ``Refused``.
        """

    @property
    @abstractmethod
    def address(self) -> str:
        """What a worker needs to join: for ``-m collector --join ADDRESS``."""

    @abstractmethod
    def forget(self, worker: str) -> None:
        """Deletes everything that is kept for a worker that was lost or has left: replies, files, payloads."""

    @abstractmethod
    def close(self) -> None:
        """Stops answering and deletes what is left of the conversations; may be called twice."""
