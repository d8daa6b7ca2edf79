"""A tree of sections as dotted keys and values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from rlframe.utils.field import raw_items


def flat(tree: Mapping[str, Any], whole: Container[str] = (), prefix: str = '') -> dict[str, Any]:
    """Returns the values of a tree by dotted keys; empty sections, and those at the keys of ``whole``, are values."""
    found: dict[str, Any] = {}
    for name, value in raw_items(tree):
        key = f'{prefix}{name}'
        if isinstance(value, Mapping) and value and key not in whole:
            found |= flat(value, whole, f'{key}.')
        else:
            found[key] = value
    return found
