"""What the tests of envs share: managers that are closed, and a look at what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fault_envs import leftovers


@pytest.fixture
def opened() -> Iterator[Callable[[Any], Any]]:
    """Returns the manager that it is given, and closes it when the test is over."""
    managers: list[Any] = []

    def keep(manager: Any) -> Any:
        managers.append(manager)
        return manager

    yield keep
    for manager in managers:
        manager.close()


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Fails a test that leaves processes or open files."""
    before = leftovers()
    yield
    assert leftovers() == before
