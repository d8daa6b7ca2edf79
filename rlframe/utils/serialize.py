"""Serializes Python objects for other processes of this run, and names the parts that cannot be serialized."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.errors import SerializationError
from rlframe.utils.lazy import LazyModule
from rlframe.utils.resolved_config import raw_items

# it also serializes functions and classes of scripts and notebooks; gymnasium depends on it
cloudpickle = LazyModule('cloudpickle')

MAX_DEPTH = 20
"""Maximum number of steps from an object to the part of it that cannot be serialized."""


FACTORY = 'Use a module-level factory: a function or class that makes such parts itself in the other process.'
"""Remedy for objects that are built in one process and needed in another."""


def to_bytes(value: Any, name: str, remedy: str = FACTORY) -> bytes:
    """Serializes a value for ``from_bytes`` in another process of this run; lambdas and local classes work.

    Args:
        value: The object to serialize.
        name: Its name in an error.
        remedy: How to avoid a part that cannot be serialized.

    Raises:
        SerializationError: With the path to the part that cannot be serialized.
    """
    problem = _problem(value)
    if problem is None:
        written: bytes = cloudpickle.dumps(value)
        return written
    path, part = name, value
    for _ in range(MAX_DEPTH):
        for step, inner in _parts(part):
            if (deeper := _problem(inner)) is not None:
                path, part, problem = path + step, inner, deeper
                break
        else:
            break
    raise SerializationError(
        f'{path} is a {type(part).__name__}, which cannot be sent to another process'
        f' ({type(problem).__name__}: {problem})',
        where=path,
        remedy=remedy,
    ) from problem


def plain_to_bytes(value: Any, name: str, remedy: str = '') -> bytes:
    """Serializes like ``to_bytes``, but faster for plain data and importable classes."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # whatever an object's own methods raise
        return to_bytes(value, name, remedy)


def from_bytes(data: bytes | memoryview) -> Any:
    """Restores a value from the bytes of ``to_bytes`` or ``plain_to_bytes``.

    Unpickling runs any code that the bytes contain, so they may come only from another process of this run, through a
    pipe that nobody else can write to, or from a Ray actor (Ray unpickles its messages anyway, so its cluster must be
    protected by a token): never from a file, and never over any other network.
    """
    return pickle.loads(data)  # bytes of this run's own processes only, as said above


def _problem(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # whatever an object's own methods raise
        return error
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the parts of an object, each with the suffix that accesses it, such as ``.name`` or ``[0]``."""
    if isinstance(value, Mapping):
        for key, inner in raw_items(value):
            yield f'[{key!r}]', inner
    elif isinstance(value, list | tuple | set | frozenset):
        for i, inner in enumerate(value):
            yield f'[{i}]', inner
    elif isinstance(value, functools.partial):
        yield '.func', value.func
        yield from ((f'.args[{i}]', inner) for i, inner in enumerate(value.args))
        yield from ((f'.keywords[{key!r}]', inner) for key, inner in value.keywords.items())
    elif inspect.ismethod(value):
        yield '.__self__', value.__self__
    elif inspect.isfunction(value):
        found = inspect.getclosurevars(value)
        yield from ((f'.<closure>.{key}', inner) for key, inner in found.nonlocals.items())
        yield from ((f'.<global>.{key}', inner) for key, inner in found.globals.items())
        yield from ((f'.__defaults__[{i}]', inner) for i, inner in enumerate(value.__defaults__ or ()))
    else:
        yield from ((f'.{key}', inner) for key, inner in getattr(value, '__dict__', {}).items())
