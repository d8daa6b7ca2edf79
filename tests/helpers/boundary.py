"""How the property tests of a boundary draw their cases: a few, always the same, or as many as RLFRAME_EXAMPLES says, at random."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = os.environ.get('RLFRAME_EXAMPLES')

boundary = settings(
    max_examples=int(EXAMPLES or 25),
    derandomize=EXAMPLES is None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
"""Decorates such a test, above or below ``given``."""
