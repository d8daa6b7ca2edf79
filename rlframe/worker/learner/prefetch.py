"""Fetching batches ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any


def prefetched(batches: Iterator[Any], ahead: int = 1) -> Iterator[Any]:
    """Yields the items of an iterator, prefetched in a thread that ends when the generator is closed.

    Args:
        batches: Source of the batches.
        ahead: Batches to hold ready.
    """
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(ahead)
    closing = threading.Event()
    thread = threading.Thread(
        target=_fetch, args=(batches, ready, closing), name='rlframe-prefetch', daemon=True
    )
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


def _fetch(batches: Iterator[Any], ready: queue.Queue[Any], closing: threading.Event) -> None:
    """Fills the queue until it is told to close; an error is handed on to be raised by the consumer."""
    try:
        for batch in batches:
            _put(ready, (batch, None), closing)
            if closing.is_set():
                return
        _put(ready, (None, StopIteration()), closing)
    except BaseException as error:
        _put(ready, (None, error), closing)


def _put(ready: queue.Queue[Any], item: tuple[Any, BaseException | None], closing: threading.Event) -> None:
    while not closing.is_set():
        try:
            ready.put(item, timeout=0.1)
            return
        except queue.Full:
            continue
