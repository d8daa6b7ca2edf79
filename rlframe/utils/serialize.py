"""Serializes Python objects for other processes of this run, and names the parts that cannot be serialized."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rlframe._version import __version__
from rlframe.errors import SerializationError
from rlframe.registry import REGISTRIES
from rlframe.utils.field import raw_items
from rlframe.utils.lazy import LazyModule

# it also serializes functions and classes of scripts and notebooks; gymnasium depends on it
cloudpickle = LazyModule('cloudpickle')

MAX_DEPTH = 20
"""Maximum number of steps from an object to the part of it that cannot be serialized."""


FACTORY = 'Use a module-level factory: a function or class that makes such parts itself in the other process.'
"""Remedy for objects that are built in one process and needed in another."""
MT19937_WORDS, PHILOX_WORDS = 624, 4
"""Number of random words that these generators hold; the position after the last one means that none are left."""
Array: TypeAlias = npt.NDArray[Any]

ACTING = ('env', 'env_manager', 'policy', 'model', 'collector', 'evaluator')
"""Kinds of components that an actor may be made of."""


def to_bytes(value: Any, name: str, remedy: str = FACTORY) -> bytes:
    """Serializes a value for ``from_bytes`` in another process of this run; lambdas and local classes work.

    Args:
        value: The object to serialize.
        name: Its name in an error.
        remedy: How to avoid a part that cannot be serialized.

    Raises:
        SerializationError: With the path to the part that cannot be serialized.
    """
    try:
        written: bytes = cloudpickle.dumps(value)
        return written
    except Exception as error:  # whatever an object's own methods raise
        problem: Exception | None = error
    path, part = name, value
    for _ in range(MAX_DEPTH):
        for step, inner in _parts(part):
            if (deeper := _problem(inner)) is not None:
                path = path + step
                part = inner
                problem = deeper
                break
        else:
            break
    raise SerializationError(
        f'{path} is a {type(part).__name__}, which cannot be sent to another process'
        f' ({type(problem).__name__}: {problem})',
        where=path,
        remedy=remedy,
    ) from problem


def on_cpu(module: Any) -> Any:
    """Returns a module that any process can receive: a copy on the CPU if it is elsewhere; other objects unchanged."""
    if not hasattr(module, 'parameters') or all(p.device.type == 'cpu' for p in module.parameters()):
        return module
    return copy.deepcopy(module).cpu()


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


def checked_bits(state: Any) -> Any:
    """Returns the state of a bit generator if it is valid.

    Raises:
        ValueError: If its position lies outside its words, or its numbers would all be 0.
    """
    name = state.get('bit_generator') if isinstance(state, Mapping) else None
    if name == 'MT19937':
        _check(state['state']['pos'], MT19937_WORDS)
        _check_words(state['state']['key'])
    elif name == 'Philox':
        _check(state['buffer_pos'], PHILOX_WORDS)
    elif name in ('PCG64', 'PCG64DXSM') and state['state']['inc'] % 2 == 0:
        raise ValueError('the increment of a random generator is even')
    return state


def checked_words(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the state of numpy's global generator, as a tuple, if it is valid; raises like ``checked_bits``."""
    _check(state[2], MT19937_WORDS)
    _check_words(state[1])
    return state


def _check_words(words: Any) -> None:
    if not np.any(words):
        raise ValueError('the words of a random generator are all 0')


def _check(position: Any, most: int) -> None:
    if type(position) is not int or not 0 <= position <= most:
        raise ValueError(f'the position {position!r} of a random generator is none of 0 to {most}')


def struct_dtype(fields: Mapping[str, tuple[Any, tuple[int, ...]]]) -> np.dtype[Any]:
    """Returns a dtype for rows with these fields, laid out so that each field can be wrapped as a tensor.

    Args:
        fields: Names to the type and the shape of a field in one row.
    """
    return np.dtype({'names': list(fields), 'formats': list(fields.values())}, align=True)


def leaves(array: Array, path: str = '') -> Iterator[tuple[str, Array]]:
    """Yields each plain array in a structured one, however nested, with its path; a plain array yields itself.

    Args:
        array: The array.
        path: Name of the array; the field ``camera`` of ``obs`` is ``obs['camera']``.
    """
    if array.dtype.names is None:
        yield path, array
        return
    for name in array.dtype.names:
        yield from leaves(array[name], field_path(path, name))


def field_path(path: str, name: str) -> str:
    """Formats a field for an error: ``obs['camera']``, or ``obs[1]`` if it is part of a tuple."""
    return f'{path}[{name if name.isdigit() else repr(name)}]'


def components_of_script(kinds: Iterable[str] = ACTING) -> bytes:
    """Returns by kind and name the classes registered by the main program, which other processes cannot import; pickled.

    Args:
        kinds: Kinds of components, as named in ``REGISTRIES``.

    Raises:
        SerializationError: If a class cannot be sent.
    """
    found = {
        (kind, name): cls
        for kind in kinds
        for name, cls in REGISTRIES[kind].registered_in('__main__').items()
    }
    remedy = 'Move the registered class to a module of its own, and list that module in import_names.'
    return to_bytes(found, 'components', remedy)


def register_components(components: Mapping[tuple[str, str], type[Any]]) -> None:
    """Registers the components of a main program, from ``components_of_script``, in another process."""
    for (kind, name), cls in components.items():
        REGISTRIES[kind].register(name, cls, force_overwrite=True)


def to_child(value: Any, name: str, kinds: Iterable[str] = REGISTRIES) -> bytes:
    """Serializes a value for ``from_parent`` in a child process, with the classes that this script registers."""
    return to_bytes((__version__, components_of_script(kinds), to_bytes(value, name)), name)


def from_parent(data: bytes) -> Any:
    """Restores a value from the bytes of ``to_child``, after registering the classes of the parent's script.

    Raises:
        SerializationError: If the parent has another version of rlframe.
    """
    version, components, value = from_bytes(data)
    if version != __version__:
        raise SerializationError(
            f'another version of rlframe: {__version__} there, {version} here',
            remedy='Install the same version of rlframe everywhere.',
        )
    register_components(from_bytes(components))
    return from_bytes(value)
