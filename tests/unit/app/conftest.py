"""Every test of these commands has an empty working directory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_an_empty_folder(cwd: Path) -> None:
    """Requests ``cwd`` for each test."""
