"""Values that travel with the training data of collectors, through the coordinator, to the learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def joined(data: Any, extras: Mapping[str, Any]) -> Any:
    """Returns the payload of data and extras: the data alone if there are none."""
    return {'data': data, **extras} if extras else data


def split(payload: Any) -> tuple[Any, dict[str, Any]]:
    """Returns data and extras of a payload from ``joined``."""
    if isinstance(payload, dict) and 'data' in payload:
        return payload['data'], {name: value for name, value in payload.items() if name != 'data'}
    return payload, {}


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the extras of two payloads as those of one: lists are joined, of other values the later one counts."""
    lists = {
        name: before[name] + value
        for name, value in after.items()
        if isinstance(value, list) and name in before
    }
    return {**before, **after, **lists}
