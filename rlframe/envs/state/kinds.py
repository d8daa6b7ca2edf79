"""Objects with more state than attributes: those saved by value, and those saved by their path in the env."""

from __future__ import annotations

import enum
import functools
import logging
import operator
import random
import re
import threading
import types
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.envs.state.attributes import attributes_of
from rlframe.envs.state.classes import HEAP, module_of, type_name
from rlframe.envs.state.values import cached, encode_value

if TYPE_CHECKING:
    from rlframe.envs.state.write import Writer

BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
"""Sources of random numbers, by their names."""
NUMPY_GLOBAL: Any = np.random.mtrand._rand  # type: ignore[attr-defined]  # not in the stubs
PYTHON_GLOBAL: Any = random._inst  # type: ignore[attr-defined]  # not in the stubs
"""Generators of the whole process, whose states are saved with the process."""
LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
CONSTANTS = (
    type, types.ModuleType, types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.GenericAlias, types.UnionType, types.CodeType, property, staticmethod, classmethod, re.Pattern,
    np.ufunc, logging.Logger, logging.LoggerAdapter, operator.itemgetter, operator.attrgetter, operator.methodcaller,
    type(functools.lru_cache(lambda: None)), np.dtype,
)  # fmt: skip
"""Types without a state that steps depend on: the same object is in any env that is made in the same way."""
SHOWN = {'Clock', 'Font', 'Window', 'Renderer', 'Texture', 'Event', 'Sound', 'Channel'}
"""Types of pygame that are only used for display and sound."""
DRAWN = 'Surface'
"""The type of pygame's images: for display if the env renders, else possibly part of its observation."""
IMMUTABLE = frozenset(
    ('tuple', 'frozenset', 'value', 'slice', 'enum', 'flag', 'seeds', 'bound', 'global', 'global_random')
)
"""Kinds of nodes that are created anew instead of filled in place."""
ONLY_LIVE = frozenset(('constant', 'function', 'own'))
"""Kinds of nodes that are never created, only looked up in the env."""
FACTORIES = ('EnvFactory', 'MakeEnv')
"""Classes of ``rlframe.envs.base_env`` that create envs: the config chooses them, not a state."""
BOUND: tuple[Any, ...] = (np.random.Generator, np.random.RandomState, random.Random, list, dict, set, deque)
"""Types whose methods may be values."""
LEAVES = (type(None), bool, int, float, str)
EMPTY = ['empty']


def is_space(value: Any) -> bool:
    """Whether this is a space of Gymnasium."""
    return _is_of(type(value), 'gymnasium.spaces.space', 'Space')


def is_shown(value: Any, draws: bool) -> bool:
    """Whether an object is not part of the state: a description of the env, or used for rendering only.

    Args:
        value: The object.
        draws: Whether the env renders.
    """
    kind = type(value)
    if module_of(kind).partition('.')[0] == 'pygame':
        return kind.__name__ in SHOWN or (draws and kind.__name__ == DRAWN)
    return _is_of(kind, 'gymnasium.envs.registration', 'EnvSpec')


def is_factory(value: Any) -> bool:
    """Whether an object creates envs."""
    return any(_is_of(type(value), 'rlframe.envs.base_env', name) for name in FACTORIES)


def is_leaf(value: Any) -> bool:
    """Whether a value is a number, text, or a tuple or frozen set of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_leaf, value))
    return type(value) in LEAVES or isinstance(value, enum.Enum) or encode_value(value) is not None


def kind_of(value: Any) -> Callable[[Writer, int, Any, str | None], dict[str, Any]] | None:
    """Returns the writer of objects whose state is not just their attributes; ``None`` for all others."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return enum_member
    if isinstance(value, types.FunctionType):
        return function
    if kind is types.MethodType and type(value.__self__) in BOUND:
        is_own = getattr(type(value.__self__), value.__name__, None) is value.__func__
        return bound_method if is_own else call
    if kind in (types.MethodType, functools.partial):
        return call
    if (
        kind is not object
        and not kind.__flags__ & HEAP
        and isinstance(getattr(value, '__self__', None), BOUND)
    ):
        return bound_method
    if kind in (LOCK, RLOCK):
        return lock
    is_constant = kind is object or isinstance(value, CONSTANTS) or is_factory(value)
    if is_constant or kind.__name__ == 'cython_function_or_method' or is_shown(value, False):
        return constant
    if hasattr(kind, 'get_state') and hasattr(kind, 'set_state') and is_env(value):
        return own_state
    return None


def is_env(value: Any) -> bool:
    """Whether this is an env, a wrapper or a vector env."""
    kind = type(value)
    return _is_of(kind, 'gymnasium.core', 'Env') or _is_of(kind, 'gymnasium.vector.vector_env', 'VectorEnv')


def constant(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Writes an object that another env has at the same path."""
    if place is None and not writer.surveys:
        raise writer.refused(number, "was set after the env's constructor")
    named = value if isinstance(value, type) else type(value)
    return {'kind': 'constant', 'type': type_name(named)}


def lock(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Writes an unlocked lock."""
    is_held = value.locked() if isinstance(value, LOCK) else 'owner=0 ' not in repr(value)
    if is_held:
        raise writer.refused(number, 'is held')
    return constant(writer, number, value, place)


def function(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Writes a function that another env has at the same path, and its closure variables."""
    node = constant(writer, number, value, place)
    path = writer.path(number)
    cells = value.__closure__ or ()
    names = value.__code__.co_freevars
    node['cells'] = [
        EMPTY if _is_empty(cell) else writer.value(cell.cell_contents, path, name)
        for name, cell in zip(names, cells, strict=True)
    ]
    pins = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *vars(value).values()]
    node['pins'] = writer.values(pins, f'{path}.defaults')
    node['kind'], node['name'] = 'function', f'{value.__module__}:{value.__qualname__}'
    return node


def call(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Writes a bound method or partial call that another env has at the same path."""
    node = constant(writer, number, value, place)
    if isinstance(value, functools.partial):
        pins = [value.func, *value.args, *value.keywords.values(), *vars(value).values()]
    else:
        pins = [value.__self__, value.__func__]
    node['pins'] = writer.values(pins, writer.path(number))
    return node


def bound_method(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Writes a method of a container or generator."""
    owner, name = value.__self__, value.__name__
    if place is not None and (owner is NUMPY_GLOBAL or owner is PYTHON_GLOBAL):
        return constant(writer, number, value, place)
    is_found = type(owner) in BOUND and not name.startswith('_') and hasattr(type(owner), name)
    if not is_found:
        return constant(writer, number, value, place)
    return {'kind': 'bound', 'of': writer.value(owner, f'{writer.path(number)}.__self__'), 'name': name}


def enum_member(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Writes a member of an enumeration, or several flags at once."""
    kind = type(value)
    if writer.class_name(kind) is None:
        return constant(writer, number, value, place)
    if kind._member_map_.get(value._name_) is value:
        return {'kind': 'enum', 'class': type_name(kind), 'name': value._name_}
    missing: Any = kind._missing_
    usual: Any = enum.Flag._missing_
    is_usual = isinstance(value, enum.Flag) and missing.__func__ is usual.__func__
    if not is_usual or type(value._value_) is not int:
        return constant(writer, number, value, place)
    return {'kind': 'flag', 'class': type_name(kind), 'value': value._value_}


def own_state(writer: Writer, number: int, value: Any, place: str | None) -> dict[str, Any]:
    """Asks an env for its state."""
    node = constant(writer, number, value, place)
    node['kind'] = 'own'
    if not writer.surveys:
        writer.own[str(number)] = value.get_state()
    if 'env' in (attributes_of(value) or {}):
        node['env'] = writer.value(value.env, f'{writer.path(number)}.env')
    return node


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  it raises if there is nothing
    except ValueError:
        return True
    return False


@cached
def _is_of(kind: type, module: str, name: str) -> bool:
    return any(base.__name__ == name and module_of(base) == module for base in kind.__mro__)
