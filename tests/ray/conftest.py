"""One Ray for all tests of this folder that do not start one of their own."""

from __future__ import annotations

import time
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
CPUS = 4


@pytest.fixture(scope='session')
def started_ray() -> Iterator[Any]:
    """Ray with 4 CPUs, more than there may be: what the tests start waits most of the time."""
    import ray

    ray.init(**RAY, num_cpus=CPUS)
    yield ray
    ray.shutdown()


@pytest.fixture
def ray_of_tests(started_ray: Any) -> Any:
    """The Ray of all tests, once the actors of the test before have given their CPUs back."""
    until = time.monotonic() + 30
    while started_ray.available_resources().get('CPU', 0) < CPUS and time.monotonic() < until:
        time.sleep(0.05)
    return started_ray
