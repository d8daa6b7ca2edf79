"""Reads the attributes of an object without slowing down later access to them."""

from __future__ import annotations

import sys
from typing import Any


def attributes_of(value: Any) -> dict[Any, Any] | None:
    """Returns the dict that holds an object's attributes, or ``None`` if it has none.

    Up to Python 3.12 the first read of ``__dict__`` moves the attributes out of the object into a dict that shares its
    keys with others of the class, which the interpreter reads without its cache: an env steps up to a third slower from
    then on. Removing one item and adding it again gives the dict its own keys, whose access is cached again.
    """
    if not type(value).__dictoffset__:
        return None
    try:
        found = object.__getattribute__(value, '__dict__')
    except AttributeError:
        return None
    if type(found) is not dict:
        return found if isinstance(found, dict) else None
    if found and sys.version_info < (3, 13):
        name, last = found.popitem()
        found[name] = last
    return found
