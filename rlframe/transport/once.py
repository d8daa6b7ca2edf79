"""Replies: the memory of a server that handles every request at most once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from rlframe.errors import MessageError
from rlframe.transport.envelope import Envelope
from rlframe.transport.messages import REJOIN, Join

R = TypeVar('R')

MOST_STRANGERS = 64
"""Connections without a worker whose replies are kept: of ``Join``, and of workers that were forgotten."""


class _Entry(Generic[R]):
    """A request that is or was handled."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.reply: R | None = None
        self.is_dropped = False


class _Session(Generic[R]):
    """The connection of a worker."""

    def __init__(self) -> None:
        self.worker = ''
        self.entries: dict[int, _Entry[R]] = {}
        self._newest, self._unanswered = -1, frozenset[int]()

    def admit(self, envelope: Envelope) -> list[_Entry[R]]:
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

    def __init__(self, release: Callable[[R], None] | None = None, patience: float = 5.0) -> None:
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
        self._release_all(dropped)
        if is_new:
            return self._handled(entry, handle)
        if not entry.done.wait(self._patience) or entry.reply is None:
            raise TimeoutError(f'request {envelope.seq} is still being handled')
        return entry.reply

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
            dropped: list[_Entry[R]] = []
            if session is not None:
                session.worker = ''
                dropped = [entry for entry in session.entries.values() if entry.done.is_set()]
                session.entries = {n: e for n, e in session.entries.items() if not e.done.is_set()}
        self._release_all(dropped)

    def close(self) -> None:
        """Drops all replies."""
        with self._lock:
            dropped = [entry for session in self._sessions.values() for entry in session.entries.values()]
            self._sessions, self._workers = {}, {}
        self._release_all(dropped)

    def _entry(self, envelope: Envelope) -> tuple[_Entry[R], bool, list[_Entry[R]]]:
        """Returns the entry of a request, whether it is new, and the entries that are no longer needed."""
        session = self._sessions.get(envelope.session)
        if session is not None and envelope.seq in session.entries:
            return session.entries[envelope.seq], False, []
        dropped: list[_Entry[R]] = []
        if isinstance(envelope.message, Join):
            if session is None:
                session = self._sessions[envelope.session] = _Session()
                dropped = self._drop_strangers(envelope.session)
        elif session is None or not session.worker:
            raise MessageError('the coordinator does not know this worker', remedy=REJOIN)
        elif session.worker != envelope.sender:
            raise MessageError('this id belongs to another connection', where='sender', remedy=REJOIN)
        dropped += session.admit(envelope)
        entry = session.entries[envelope.seq] = _Entry()
        return entry, True, dropped

    def _drop_strangers(self, newest: str) -> list[_Entry[R]]:
        """Removes the oldest connections without a worker if there are too many."""
        strangers = [
            name
            for name, session in self._sessions.items()
            if not session.worker and all(entry.done.is_set() for entry in session.entries.values())
        ]
        most = max(len(strangers) - MOST_STRANGERS, 0)
        gone = [name for name in strangers[:most] if name != newest]
        return [entry for name in gone for entry in self._sessions.pop(name).entries.values()]

    def _handled(self, entry: _Entry[R], handle: Callable[[], R]) -> R:
        try:
            reply = handle()
            with self._lock:
                entry.reply = reply
                entry.done.set()
                is_dropped = entry.is_dropped
            if is_dropped:
                self._release(reply)
            return reply
        finally:
            entry.done.set()

    def _release_all(self, entries: list[_Entry[R]]) -> None:
        with self._lock:
            for entry in entries:
                entry.is_dropped = True
            replies = [entry.reply for entry in entries if entry.reply is not None]
        for reply in replies:
            self._release(reply)
