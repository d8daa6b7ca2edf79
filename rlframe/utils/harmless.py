"""Allow-lists of values that reach nothing beyond a run: predicates that take any value and never raise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any


def is_same(value: Any, default: Any) -> bool:
    """Whether a value equals a default, including types; accepts any value and never raises."""
    if type(value) is not type(default):
        return False
    if isinstance(value, dict):
        return value.keys() == default.keys() and all(is_same(value[name], default[name]) for name in value)
    if isinstance(value, list | tuple):
        return len(value) == len(default) and all(map(is_same, value, default))
    return value is default or (isinstance(value, bool | int | float | str) and value == default)


def is_number(value: Any) -> bool:
    """Whether a value is None, a bool, a number, or a list of these, so it cannot name anything."""
    if type(value) in (list, tuple):
        return all(map(is_number, value))
    return value is None or type(value) in (bool, int, float)


def only_numbers(value: Any) -> bool:
    """Whether a value is a dict of numbers."""
    return isinstance(value, Mapping) and all(map(is_number, value.values()))


def allowed(**rules: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a predicate of dicts with only these keys, each with a value that its rule allows."""

    def is_allowed(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(name, str) and name in rules and rules[name](inner) for name, inner in value.items()
        )

    return is_allowed


def words(pattern: str) -> Callable[[Any], bool]:
    """Returns a predicate of numbers, strings that fully match a pattern, and lists of these."""
    compiled = re.compile(pattern)

    def is_allowed(value: Any) -> bool:
        if type(value) in (list, tuple):
            return all(map(is_allowed, value))
        return is_number(value) or (type(value) is str and compiled.fullmatch(value) is not None)

    return is_allowed
