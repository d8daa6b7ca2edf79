"""Each test here has a folder for the programs of one run, none of which outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_envs import shared_memory
from parallel_programs import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    before = shared_memory()
    made = Site(tmp_path)
    yield made
    made.end()
    assert shared_memory() <= before
