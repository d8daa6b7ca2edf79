"""One Ray for all tests of this folder that do not start one of their own."""

from __future__ import annotations

import time
from typing import Any

import one_ray
import pytest

CPUS = 4


@pytest.fixture
def ray_of_tests() -> Any:
    """Ray with 4 CPUs, once the actors of the test before have given theirs back.

    There may be fewer CPUs in this machine: what the tests start waits most of the time.
    """
    ray = one_ray.share(num_cpus=CPUS)
    until = time.monotonic() + 30
    while ray.available_resources().get('CPU', 0) < CPUS and time.monotonic() < until:
        time.sleep(0.05)
    return ray
