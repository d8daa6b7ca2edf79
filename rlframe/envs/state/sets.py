"""Sets whose order is the same in every process that inserts the same elements."""

from __future__ import annotations

import enum
import operator
from random import Random
from typing import Any

import numpy as np

LEAVES = (type(None), bool, int, float, complex, str, bytes, range, enum.Enum, np.generic, tuple, frozenset)

TRIES = 200
"""Orders in which the elements of a frozen set are tried."""


def has_own_hash(value: Any) -> bool:
    """Whether a value's hash depends on its value, not on its address."""
    if isinstance(value, tuple | frozenset):
        return all(map(has_own_hash, value))
    return isinstance(value, LEAVES) or type(value).__hash__ is not object.__hash__


def refill(target: set[Any], items: list[Any]) -> None:
    """Clears and refills a set, so that its order and the results of ``pop`` depend only on the elements."""
    set.clear(target)
    set.add(target, 0)
    set.pop(target)  # the position where the next pop starts is kept, even if a set is emptied
    set.clear(target)
    set.update(target, items)


def made_frozenset(kind: Any, items: list[Any], is_merged: bool) -> Any:
    """Returns a frozen set of elements that were added one by one, or all at once from another set."""
    return frozenset.__new__(kind, set(items) if is_merged else items)


def order_of(value: frozenset[Any]) -> tuple[list[Any], bool] | None:
    """Returns the elements in an insertion order that reproduces a frozen set's order, or ``None`` if none is found.

    Text has another hash, and so another order, in each process: its order is ignored.
    """
    items = list(frozenset.__iter__(value))
    if not all(map(has_fixed_hash, items)):
        return items, False
    for attempt in range(TRIES):
        tried = items[:: -1 if attempt == 1 else 1]
        if attempt > 1:
            Random(attempt).shuffle(tried)
        for is_merged in (False, True):
            made = made_frozenset(frozenset, tried, is_merged)
            same_size = frozenset.__sizeof__(made) == frozenset.__sizeof__(value)
            if same_size and all(map(operator.is_, made, items)):
                return tried, is_merged
    return None


def has_fixed_hash(value: Any) -> bool:
    """Whether a value's hash is the same in every process."""
    if isinstance(value, tuple | frozenset):
        return all(map(has_fixed_hash, value))
    return isinstance(value, bool | int | float | complex | np.number | np.bool_)
