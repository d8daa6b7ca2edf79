"""Fetching batches ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any


def prefetched(batches: Iterator[Any], ahead: int = 1) -> Iterator[Any]:
    """Yields what an iterator yields, fetched ahead in a thread that ends when the generator is closed.

    Args:
        batches: What to fetch from.
        ahead: Batches to hold ready.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(ahead)
    closing = threading.Event()

    def put(item: tuple[Any, BaseException | None]) -> None:
        while not closing.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def fetch() -> None:
        try:
            for batch in batches:
                put((batch, None))
                if closing.is_set():
                    return
            put((None, StopIteration()))
        except BaseException as error:  # handed on to the consumer, which raises it
            put((None, error))

    thread = threading.Thread(target=fetch, name='rlframe-prefetch', daemon=True)
    thread.start()
    try:
        while True:
            batch, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield batch
    finally:
        closing.set()
        thread.join(timeout=5)
