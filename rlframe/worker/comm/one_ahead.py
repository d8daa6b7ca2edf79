"""OneAhead: requests the data of the next round while the current one is trained on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar('T')


class OneAhead(Generic[T]):
    """Calls a function one call ahead, in a thread of its own.

    Args:
        fetch: Returns the next item; None if there are to be no more.
    """

    def __init__(self, fetch: Callable[[], T | None]) -> None:
        self._fetch = fetch
        self._pool: ThreadPoolExecutor | None = None
        self._next: Future[T | None] | None = None

    def take(self) -> T | None:
        """Returns the next item, and begins to fetch the one after it; raises what ``fetch`` raised."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, 'rlframe-data')
        if self._next is None:
            self._next = self._pool.submit(self._fetch)
        current = self._next.result()
        self._next = self._pool.submit(self._fetch) if current is not None else None
        return current

    def drop(self) -> None:
        """Waits for the call that is running, and drops its result."""
        if self._next is not None:
            self._next.exception()
            self._next = None

    def close(self) -> None:
        """Ends the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
