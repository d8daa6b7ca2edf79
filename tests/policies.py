"""The policies whose contracts tests try."""

from __future__ import annotations

from rlframe.registry import POLICY_REGISTRY

SAME = ('mdqn', 'rainbow', 'redq', 'droq')
"""Names of a policy with other defaults, whose switches tests/unit/policy tries; a toy is all that they need."""


def tried_policies() -> list[str]:
    """Returns the names of all other policies."""
    return [name for name in POLICY_REGISTRY.names() if name not in SAME]
