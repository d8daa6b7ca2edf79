"""What DI-engine calls a policy and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class DingNames:
    """DI-engine's names and defaults that only one policy has; ``config.ding_table`` has those that several share.

    Keys are dotted and begin below the section ``policy``.
    """

    type: str = ''
    """Its type; empty: the same."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its keys, and the options that they are here."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options here whose defaults differ, with DI-engine's."""
    unused: Mapping[str, str] = field(default_factory=dict)
    """Its keys without a counterpart, and what replaces them."""

    def having(self, **more: Mapping[str, Any]) -> DingNames:
        """Returns the same names with further ones in some of the tables."""
        return replace(self, **{table: {**getattr(self, table), **own} for table, own in more.items()})
