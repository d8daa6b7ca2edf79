"""Makes sure that no test of parallel mode leaves a thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(60)  # that of a request ends when it has noticed that its connection is closed
    assert [thread.name for thread in left if thread.is_alive()] == []
