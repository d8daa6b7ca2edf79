"""One Ray for all tests of this folder that do not start one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

RAY = {
    'address': 'local',
    'include_dashboard': False,
    'configure_logging': False,
    'object_store_memory': 200 * 2**20,
}
"""Arguments of ``ray.init`` for a Ray that lives as long as a test does."""


@pytest.fixture(scope='session')
def ray_of_tests() -> Iterator[Any]:
    """Ray with 4 CPUs, more than there may be: what the tests start waits most of the time."""
    import ray

    ray.init(**RAY, num_cpus=4)
    yield ray
    ray.shutdown()
