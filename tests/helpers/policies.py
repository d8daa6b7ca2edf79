"""The policies whose contracts tests try."""

from __future__ import annotations

from rlframe.registry import POLICY_REGISTRY

SAME = ('mdqn', 'rainbow', 'a2c', 'appo', 'ddpg', 'tqc', 'redq', 'droq')
"""Names of a policy with other defaults, whose switches tests/unit/policy tries; a toy is all that they need."""


def tried_policies() -> list[str]:
    """Returns the names of all other policies."""
    return [name for name in POLICY_REGISTRY.names() if name not in SAME]


ACTORS = ('dqn', 'pdqn', 'r2d2', 'ppo', 'bc', 'td3', 'sac', 'sac_discrete')
"""Policies that act differently; each other one acts as one of them does."""


def acting_policies() -> list[str]:
    """Returns these, and the policies of modules that ``RLFRAME_IMPORT`` names."""
    return [
        name for name in POLICY_REGISTRY.names() if name in ACTORS or not POLICY_REGISTRY.is_builtin(name)
    ]
