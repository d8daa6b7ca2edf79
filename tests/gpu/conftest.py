"""Cells that cannot be tried on this machine are skipped before their tests start."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_cells import Cell, why_skipped


@pytest.fixture
def cell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A policy in a mode on a device, in an empty working directory."""
    found: Cell = request.param
    if why := why_skipped(found):
        pytest.skip(why)
    monkeypatch.chdir(tmp_path)
    return found
