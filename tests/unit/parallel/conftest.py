"""Makes sure that no test of parallel mode leaves a thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert [thread.name for thread in set(threading.enumerate()) - before] == []
