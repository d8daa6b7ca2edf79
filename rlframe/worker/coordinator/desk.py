"""Desk: where the requests of workers are answered, one after the other."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from rlframe._version import __version__
from rlframe.errors import MessageError, RequestRefusedError, RLFrameError
from rlframe.transport import messages as m
from rlframe.transport.base import Reply
from rlframe.transport.envelope import Envelope
from rlframe.worker.coordinator.workers import Worker, WorkerTable

LONG = 1.0
"""Seconds of a request that are added to the deadlines of all workers, as their messages had to wait."""
Answer = Callable[[Worker, Any, Any], m.Message | Reply]
"""Answers a message of a worker, which may have a payload."""


class Desk(ABC):
    """Answers one request after the other; none of them waits.

    Args:
        workers: The present workers.
        fingerprint: Hash of the part of the config that all roles share.
    """

    def __init__(self, workers: WorkerTable, fingerprint: str) -> None:
        self._workers, self._fingerprint = workers, fingerprint
        self.lock = threading.RLock()
        """Held while a request is answered."""
        self.error: BaseException | None = None
        """What a request raised that was no fault of its sender."""

    _answers: Mapping[type[m.Message], Answer]
    """What answers each kind of message but ``Join``."""

    @abstractmethod
    def _admit(self, message: m.Join, session: str) -> m.Joined:
        """Admits a worker that fits, over its connection."""

    def handle(self, envelope: Envelope, payload: Any = None) -> Reply:
        """Answers a request.

        Raises:
            MessageError: If it does not fit the situation, such as a message of a worker that has not joined.
            RequestRefusedError: If the worker may not join.
        """
        with self.lock:
            message, start = envelope.message, monotonic()
            try:
                answer = (
                    self._join(message, envelope.session)
                    if isinstance(message, m.Join)
                    else self._answer(envelope.sender, message, payload)
                )
            except RLFrameError:
                raise
            # the run must not continue after half of a request: the thread that watches this desk raises the error
            except BaseException as error:
                self.error = error
                raise
            finally:
                if (seconds := monotonic() - start) > LONG:  # a checkpoint, for example
                    self._workers.excuse(seconds)
            return answer if isinstance(answer, Reply) else Reply(answer)

    def _answer(self, sender: str, message: m.Message, payload: Any) -> m.Message | Reply:
        worker = self._workers.hear(sender)
        answer = self._answers.get(type(message))
        if worker is None or answer is None:
            raise MessageError(f'{type(message).__name__} of {sender!r} is not expected here')
        return answer(worker, message, payload)

    def _join(self, message: m.Join, session: str) -> m.Joined:
        for name, here, there in (
            ('version of rlframe', __version__, message.version),
            ('config', self._fingerprint, message.fingerprint),
        ):
            if here and here != there:
                raise RequestRefusedError(
                    f'{message.role} {message.name} has another {name}: {there or "none"} there, {here or "none"} here',
                    remedy='All roles need the same version of rlframe and the same config.',
                )
        return self._admit(message, session)
