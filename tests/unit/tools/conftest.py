"""What the tests of the tools share."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets what a command line adds to the import path."""
    monkeypatch.setattr(sys, 'path', list(sys.path))
