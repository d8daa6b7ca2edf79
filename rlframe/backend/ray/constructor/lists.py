"""Arguments given once for all actors, or as a list with one for each."""

from __future__ import annotations

import copy
from typing import Any

from rlframe.errors import ConfigError


def per_actor(value: Any, count: int, name: str) -> list[Any]:
    """Returns a value for each actor: copies of a single value, or those of a list.

    Raises:
        ConfigError: If a list has another length; with both lengths.
    """
    if not isinstance(value, list | tuple):
        return [copy.copy(value) if isinstance(value, dict) else value for _ in range(count)]
    if len(value) != count:
        raise ConfigError(
            f'{name} has {len(value)} entries for {count} collectors',
            where=name,
            remedy='Pass one for all collectors, or a list with one for each.',
        )
    return list(value)
