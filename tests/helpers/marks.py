"""Marks single cases of a parametrised test as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_with(value: Any, cases: Iterable[Any]) -> list[Any]:
    """Returns the cases; those that contain the value, or are the value, are marked slow."""
    return [
        _slow(case) if value in (case if isinstance(case, tuple) else (case,)) else case for case in cases
    ]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
