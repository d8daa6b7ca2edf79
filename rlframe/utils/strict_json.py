"""Reads untrusted JSON within limits and strictly by the standard.

Python's own reader accepts ``NaN`` and ``Infinity``, keeps the last of duplicate keys, and has no limit on memory.
"""

from __future__ import annotations

import json
import math
from typing import Any

from rlframe.utils.files import check_limit, limit

FLOAT = '__float__'
"""Key of a dict that encodes a float that JSON cannot represent."""


class JSONRefusedError(ValueError):
    """Invalid JSON; the message names the key if there is one."""


def loads(data: bytes, kind: str) -> Any:
    """Parses a JSON text.

    Args:
        data: The text.
        kind: The file kind whose limits apply: ``MANIFEST``, ``CONFIG``, ``POLICY`` or ``STATE``.

    Raises:
        LimitExceededError: If it is too long or has too many values.
        JSONRefusedError: If a key is duplicated, a number is not finite, or it is nested too deeply.
        json.JSONDecodeError: If it is not JSON.
    """
    check_size(len(data), kind)
    values = data.count(b',') + data.count(b'[') + data.count(b'{')  # a little more than there are
    check_limit(f'{kind}_VALUES', values, 'values in the JSON')
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_constant)
    except RecursionError:
        raise _too_deep() from None


def check_size(nbytes: int, kind: str) -> None:
    """Rejects a file that is too long, before it is read.

    Raises:
        LimitExceededError: With the limit and how to raise it.
    """
    check_limit(f'{kind}_BYTES', nbytes, 'bytes of the file')


def check_nesting(depth: int) -> None:
    """Rejects a tree that is nested too deeply.

    Raises:
        JSONRefusedError: With the limit.
    """
    if depth > limit('NESTING'):
        raise _too_deep()


def from_tagged(tree: Any, depth: int = 0) -> Any:
    """Decodes the non-finite floats that ``to_tagged`` encoded.

    Raises:
        JSONRefusedError: If it is nested too deeply, or a number is too large for a float.
    """
    check_nesting(depth)
    if isinstance(tree, dict):
        if tree.keys() == {FLOAT}:
            return float(tree[FLOAT])
        return {name: from_tagged(below, depth + 1) for name, below in tree.items()}
    if isinstance(tree, list):
        return [from_tagged(item, depth + 1) for item in tree]
    return checked_leaf(tree)


def to_tagged(tree: Any) -> Any:
    """Encodes the non-finite floats of a tree, so that JSON can represent it."""
    if isinstance(tree, dict):
        return {name: to_tagged(below) for name, below in tree.items()}
    if isinstance(tree, list):
        return [to_tagged(item) for item in tree]
    return {FLOAT: repr(tree)} if isinstance(tree, float) and not math.isfinite(tree) else tree


def checked_leaf(value: Any) -> Any:
    """Returns a value that is no list and no dict.

    Raises:
        JSONRefusedError: If it is a number such as 1e999.
    """
    if type(value) is float and not math.isfinite(value):
        raise JSONRefusedError('a number is too large for a float')
    return value


def _constant(text: str) -> float:
    raise JSONRefusedError(f'{text} is not valid JSON: numbers must be finite')


def _too_deep() -> JSONRefusedError:
    return JSONRefusedError(f'it is nested too deeply: at most {limit("NESTING")} levels are allowed')


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise JSONRefusedError(f'the key {twice!r} is duplicated')
    return found
