"""Objects in the state of an env: classes that it may name, and constants, which are not saved."""

from __future__ import annotations

import enum
import functools
import hashlib
import logging
import re
import sys
import types
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, TypeVar, cast

import numpy as np

from rlframe.utils.lazy import attributes_of

HEAP = 1 << 9
"""Flag of classes that were not compiled."""
PARTLY = frozenset(('gymnasium', 'rlframe', 'numpy'))
"""Packages in which only the modules of the env's classes count as its own code."""
LIBRARIES = ('gymnasium.spaces.', 'rlframe.data.timestep')
"""Prefixes of modules whose objects are data: a state may contain any of them."""
CONSTANTS = (
    type, types.ModuleType, types.CodeType, types.GenericAlias, property, staticmethod, classmethod, re.Pattern,
    np.ufunc, logging.Logger, type(functools.lru_cache(lambda: None)),
)  # fmt: skip
"""Types without a state that steps depend on."""
CHOSEN = (('gymnasium.envs.registration', 'EnvSpec'), ('rlframe.envs.base_env', 'EnvFactory'))
"""Classes whose objects describe or create envs: the config chooses them, not a state."""
CONFIGURED = ('render_mode', 'spec', '_cached_spec', 'env_fns')
"""Attributes of envs that come from the config."""
FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
SHARED = (np.random.Generator, np.random.RandomState, Random)
"""Types of class attributes that steps change, as they change spaces; all envs of the class share them."""
LEAVES = (type(None), bool, int, float, str, bytes, range)


Function = TypeVar('Function', bound=Callable[..., Any])


class MismatchError(Exception):
    """Raised if a state does not fit the env that it is restored into."""


def cached(function: Function) -> Function:
    """Caches the results of a function of types, which type checkers do not know to be hashable."""
    return cast(Function, functools.lru_cache(4096)(function))


def type_name(kind: type) -> str:
    """Returns the name of a class in a state: ``module:Class``."""
    return f'{module_of(kind)}:{kind.__qualname__}'


def module_of(kind: type) -> str:
    """Returns the module of a class; some compiled ones have none."""
    module = getattr(kind, '__module__', None)
    return module if isinstance(module, str) else ''


@cached
def _is_of(kind: type, module: str, name: str) -> bool:
    return any(base.__name__ == name and module_of(base) == module for base in kind.__mro__)


def is_space(value: Any) -> bool:
    """Whether this is a space of Gymnasium."""
    return _is_of(type(value), 'gymnasium.spaces.space', 'Space')


def is_env_class(kind: type) -> bool:
    """Whether objects of a class are envs, wrappers or vector envs."""
    return _is_of(kind, 'gymnasium.core', 'Env') or _is_of(kind, 'gymnasium.vector.vector_env', 'VectorEnv')


def is_env(value: Any) -> bool:
    """Whether this is an env, a wrapper or a vector env."""
    return is_env_class(type(value))


@cached
def is_plain(kind: type) -> bool:
    """Whether the attributes are all that objects of a class consist of: it is written in Python, without slots."""
    if type(kind) not in (type, ABCMeta):
        return False
    for base in kind.__mro__[:-1]:
        is_compiled = not base.__flags__ & HEAP or getattr(base.__new__, '__self__', None) is base
        if is_compiled or any(isinstance(own, types.MemberDescriptorType) for own in vars(base).values()):
            return False
    return kind.__basicsize__ <= object.__basicsize__ + 2 * tuple.__itemsize__  # attributes, weak references


class RefusedError(Exception):
    """The state of an env cannot be saved, because of an object at a path."""

    def __init__(self, path: str, kind: type, why: str = 'cannot be saved') -> None:
        name = type_name(kind).replace(':', '.').removeprefix('builtins.').lstrip('.')
        super().__init__(f'{path} ({name}) {why}')


class Classes:
    """The classes that a state of an env may name: classes of its own code, and classes that its constructor used.

    Its own code is each package, or module outside of packages, that a class of the env or of a wrapper comes from.
    """

    def __init__(self, layers: Iterable[Any] = ()) -> None:
        classes = {kind for layer in layers for kind in type(layer).__mro__}
        modules = {module_of(kind) for kind in classes} - sys.stdlib_module_names
        self._packages = {name.partition('.')[0] for name in modules} - PARTLY
        self._modules = {name for name in modules if name.partition('.')[0] not in PARTLY}
        self._known: dict[str, type] = {}

    def remember(self, kind: type) -> None:
        """Allows a class, wherever it is defined, because the constructor created an object of it."""
        if kind.__flags__ & HEAP:
            self._known.setdefault(type_name(kind), kind)

    def has(self, kind: type) -> bool:
        """Whether a state may name a class."""
        try:
            return self.find(type_name(kind)) is kind
        except MismatchError:
            return False

    def find(self, name: str) -> type:
        """Returns a class by its name, from the modules that are loaded.

        Raises:
            MismatchError: If there is no such class, or objects of it may not be made from a state.
        """
        module, _, path = name.partition(':')
        kind: Any = self._known.get(name)
        if kind is None and self._is_own(module):
            kind = sys.modules[module]
            for part in path.split('.'):
                kind = vars(kind).get(part) if isinstance(kind, type | types.ModuleType) else None
        is_found = isinstance(kind, type) and type_name(kind) == name
        is_data = is_found and (isinstance(kind, enum.EnumMeta) or is_plain(kind))
        if not is_data or hasattr(kind, '__del__') or (module.partition('.')[0] in PARTLY and acts(kind)):
            raise MismatchError(f'the class {name} does not exist or may not be part of a state')
        found: type = kind
        return found

    def shared_objects(self) -> set[int]:
        """Returns the ids of the objects that the env's own modules and their classes hold, which all envs share."""
        found: set[int] = set()
        for name in self._modules & sys.modules.keys():
            for value in list(vars(sys.modules[name]).values()):
                found.add(id(value))
                if isinstance(value, type) and self._is_own(module_of(value)):
                    found |= {id(own) for own in vars(value).values() if not is_space(own)}
        return found

    def _is_own(self, module: str) -> bool:
        if module not in sys.modules or (module in sys.stdlib_module_names and module != '__main__'):
            return False
        package = module.partition('.')[0]
        return module.startswith(LIBRARIES) or module in self._modules or package in self._packages


def acts(kind: type) -> bool:
    """Whether objects of a class run code during a step: envs, wrappers, and callables.

    Those of a library can be configured to do anything, such as a wrapper that calls a factory of envs.
    """
    does_step = any(hasattr(kind, name) for name in ('step', 'reset', 'step_async'))
    return does_step or any('__call__' in vars(base) for base in kind.__mro__)


def fingerprint(value: Any, layers: Iterable[Any] = (), seen: frozenset[int] = frozenset()) -> str | None:
    """Returns a hash of all data that a constant refers to; None if an object is no constant.

    A constant never changes itself, so that the one of another env at the same place stands for it: a class, a module, or
    a function that refers only to data, to constants, and to envs and spaces, which are restored in place.

    Args:
        value: The object.
        layers: Envs and wrappers.
        seen: Ids of the functions that refer to it.
    """
    if isinstance(value, types.BuiltinFunctionType):
        return '' if isinstance(value.__self__, types.ModuleType | type | None) else None
    if not isinstance(value, FUNCTIONS):
        is_chosen = any(_is_of(type(value), *place) for place in CHOSEN)
        return '' if is_chosen or type(value) is object or isinstance(value, CONSTANTS) else None
    if id(value) in seen:
        return ''
    found = []
    for part in _variables_of(value):
        is_restored = is_space(part) or any(part is layer for layer in layers)
        inner = fingerprint(part, layers, seen | {id(value)})
        text = '' if is_restored else inner
        if is_data(part):
            text = digest(part)
        if text is None:
            return None
        found.append(text)
    return ','.join(found)


def _variables_of(function: Any) -> list[Any]:
    """Returns the objects that a function, a bound method or a partial call refers to."""
    if isinstance(function, types.MethodType):
        return [function.__self__, function.__func__]
    if isinstance(function, functools.partial):
        keywords = function.keywords.values()
        return [function.func, *function.args, *keywords, *vars(function).values()]
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable that is not set yet
        cells = [function.__closure__]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*cells, *defaults, *vars(function).values()]


def is_leaf(value: Any) -> bool:
    """Whether a value is a number, text, or a tuple of such."""
    if type(value) is tuple:
        return all(map(is_leaf, value))
    return isinstance(value, enum.Enum | np.generic) or type(value) in LEAVES


def is_data(value: Any) -> bool:
    """Whether a value is an array, or consists of numbers and text in lists, dicts and sets."""
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if type(value) in (list, set, frozenset, dict):
        return all(map(is_data, [*value.keys(), *value.values()] if isinstance(value, dict) else value))
    return is_leaf(value)


def digest(data: Any) -> str:
    """Returns a hash of the type, shape and content of an array or of plain data."""
    if isinstance(data, np.ndarray):
        content = f'{data.dtype.str}{data.shape}'.encode() + data.tobytes()
    else:
        content = repr(data).encode('utf-8', 'surrogatepass')
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class Originals:
    """Objects that an env has had since its creation; another env, created in the same way, has them at the same paths."""

    def __init__(self, layers: Sequence[Any] = ()) -> None:
        self.layers = layers
        """The env and its wrappers."""
        self.places: dict[int, str] = {}
        """Ids of envs, spaces, constants and data of modules to their first paths."""
        self.objects: dict[str, Any] = {}
        """Paths to these objects."""
        self.prints: dict[int, str] = {}
        """Ids of constants and of data of modules to their results of ``print_of``."""

    def add(self, value: Any, path: str) -> None:
        """Notes an object at its first path."""
        if id(value) not in self.places:
            self.places[id(value)], self.objects[path] = path, value

    def print_of(self, value: Any) -> str | None:
        """Returns a hash of data, or of the data that a constant refers to; None for anything else."""
        return digest(value) if is_data(value) else fingerprint(value, self.layers)


def layers_of(env: Any) -> list[Any]:
    """Returns an env's wrappers, the outermost first, and the env; its attribute ``env`` may be something else."""
    layers: list[Any] = []
    layer = env
    while not layers or (is_env(layer) and all(layer is not outer for outer in layers)):
        layers.append(layer)
        layer = (attributes_of(layer) or {}).get('env')
    return layers


def members_of(env: Any) -> list[Any]:
    """Returns the envs of a vector env, with their wrappers."""
    envs = (attributes_of(env) or {}).get('envs')
    return [layer for member in envs for layer in layers_of(member)] if isinstance(envs, list | tuple) else []


def shared_by_all(kind: type) -> list[str]:
    """Returns the names of a class's attributes that are spaces or generators, which all its objects share."""
    return [name for name, value in vars(kind).items() if is_space(value) or isinstance(value, SHARED)]


def refill(target: set[Any], items: list[Any]) -> None:
    """Clears and refills a set, so that its order and the results of ``pop`` depend only on the elements."""
    target.clear()
    target.add(0)
    target.pop()  # the position where the next pop starts is kept, even if a set is emptied
    target.clear()
    target.update(items)


def order_of(array: np.ndarray[Any, Any]) -> str:
    """Returns the memory order of an array without gaps, ``'C'`` or ``'F'``, or an empty text for any other."""
    if array.flags.c_contiguous:
        return 'C'
    return 'F' if array.flags.f_contiguous else ''
