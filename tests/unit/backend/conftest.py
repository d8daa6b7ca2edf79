"""What the tests of backends share: a Ray without processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_ray import FakeRay, fake_ray


@pytest.fixture
def ray() -> Iterator[FakeRay]:
    """Ray without processes, whose actors collect for a second."""
    with fake_ray() as ray:
        ray.seconds['collect'] = 1.0
        yield ray
