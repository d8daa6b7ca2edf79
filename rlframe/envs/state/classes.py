"""The classes that a state may name: those of the env's own code and those that its constructor used."""

from __future__ import annotations

import enum
import os
import sys
import sysconfig
from abc import ABCMeta
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, UserString, defaultdict, deque
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any

from rlframe.envs.state.values import cached

LIBRARIES = ('gymnasium.spaces.', 'rlframe.data.batch', 'rlframe.data.timestep')
"""Module prefixes of libraries whose objects are data: a state may contain any of them."""
PARTLY = frozenset(('gymnasium', 'rlframe', 'numpy'))
"""Packages of which only these modules, and those of the env's classes, count as its own code."""
STANDARD: dict[str, type] = {
    f'collections:{kind.__name__}': kind for kind in (Counter, ChainMap, UserDict, UserList, UserString)
}
"""Pure Python classes of the standard library whose objects have no state except attributes and content."""
BASES = (
    object, dict, list, set, frozenset, tuple, deque, OrderedDict, defaultdict, bytearray, SimpleNamespace,
    int, float, complex, str, bytes,
)  # fmt: skip
"""Base types whose memory layout Python defines; classes of other compiled code have state that cannot be read."""
UNNAMED = frozenset(
    (FunctionType, BuiltinFunctionType, ModuleType, type, ABCMeta, bool, int, float, str, type(None))
)
"""Types of named objects that are restored by value or are never part of a state."""
HEAP = 1 << 9
"""Flag of classes that were not compiled."""
POINTER = tuple.__itemsize__


class MismatchError(Exception):
    """Raised if a state does not fit the env that it is restored into."""


def type_name(kind: type) -> str:
    """Returns the name of a class in a state: ``module:Class``."""
    return f'{module_of(kind)}:{kind.__qualname__}'


def module_of(kind: type) -> str:
    """Returns the module of a class; some compiled ones have none."""
    module = getattr(kind, '__module__', None)
    return module if isinstance(module, str) else ''


@cached
def layout_of(kind: type) -> type | None:
    """Returns the one of ``BASES`` that defines the class's memory layout, or ``None`` if its objects hold more."""
    for base in kind.__mro__:
        if base in BASES:
            return base
        new = base.__new__
        is_compiled = not base.__flags__ & HEAP or getattr(new, '__self__', None) is base
        inherited = base.__base__
        slots = len(own_slots(base)) + 2  # attributes, weak references
        if is_compiled or inherited is None:
            return None
        if base.__basicsize__ - inherited.__basicsize__ > slots * POINTER:
            return None
    return None


def own_slots(kind: type) -> list[str]:
    """Returns the names of the slots that a class adds."""
    return [name for name, member in vars(kind).items() if isinstance(member, MemberDescriptorType)]


@cached
def slots_of(kind: type) -> list[tuple[str, MemberDescriptorType]]:
    """Returns all slots of objects of a class by ``Class.name``, the base's first."""
    found = []
    for index, base in enumerate(reversed(kind.__mro__)):
        if base not in BASES:
            found += [(f'{index}.{name}', vars(base)[name]) for name in own_slots(base)]
    return found


def is_set(slot: MemberDescriptorType, value: Any) -> bool:
    """Whether a slot of an object has a value."""
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


class Classes:
    """The classes that a state of an env may name.

    A class counts if it is part of the env's own code: a package or folder that a class of the env or of a wrapper
    comes from. Classes of installed packages, of the standard library and of builtins do not, except for a fixed list
    and those whose objects the constructor created.

    Args:
        layers: The env and its wrappers.
    """

    def __init__(self, layers: Iterable[Any]) -> None:
        kinds = {kind for layer in layers for kind in type(layer).__mro__}
        modules = {module_of(kind) for kind in kinds} - sys.stdlib_module_names
        self._packages = {name.partition('.')[0] for name in modules} - PARTLY
        self._modules = {name for name in modules if name.partition('.')[0] not in PARTLY}
        self._folders = {folder for name in self._modules if (folder := _folder(name))}
        self._known: dict[str, type] = {}
        self._names: dict[type, str | None] = {}

    def remember(self, kind: type) -> None:
        """Allows a class of which the constructor created an object, wherever it is defined."""
        if kind.__flags__ & HEAP:
            self._known.setdefault(type_name(kind), kind)

    def name_of(self, kind: type) -> str | None:
        """Returns the name that ``find`` accepts for a class, or ``None`` if a state may not name it."""
        if kind not in self._names:
            name = type_name(kind)
            try:
                self._names[kind] = name if self.find(name) is kind else None
            except MismatchError:
                self._names[kind] = None
        return self._names[kind]

    def find(self, name: str) -> type:
        """Returns a class by its name, from the modules that are loaded.

        Raises:
            MismatchError: If there is no such class, or objects of it may not be made from a state.
        """
        module, _, path = name.partition(':')
        kind: Any = STANDARD.get(name) or self._known.get(name)
        if kind is None and self._is_own(module):
            kind = sys.modules[module]
            for part in path.split('.'):
                kind = vars(kind).get(part) if isinstance(kind, type | ModuleType) else None
        is_found = isinstance(kind, type) and type_name(kind) == name and can_be_made(kind)
        if not is_found or (module.partition('.')[0] in PARTLY and acts(kind)):
            raise MismatchError(f'the class {name} does not exist or may not be part of a state')
        found: type = kind
        return found

    def _is_own(self, module: str) -> bool:
        if module not in sys.modules or (module in sys.stdlib_module_names and module != '__main__'):
            return False
        if module.startswith(LIBRARIES) or module in self._modules:
            return True
        package = module.partition('.')[0]
        if package in PARTLY or package in sys.stdlib_module_names:
            return False
        return package in self._packages or ('.' not in module and _folder(module) in self._folders)

    def named_objects(self) -> dict[int, tuple[str, Any]]:
        """Returns the named objects of the env's own modules and their classes, by their ids."""
        found: dict[int, tuple[str, Any]] = {}
        for name in sorted(self._modules & sys.modules.keys()):
            content = vars(sys.modules[name])
            _note(found, name, content)
            for kind in list(content.values()):
                if isinstance(kind, type) and self._is_own(module_of(kind)):
                    _note(found, type_name(kind), vars(kind))
        return found

    def named_object(self, name: str) -> Any:
        """Returns an object that ``named_objects`` has under this name.

        Raises:
            MismatchError: If there is none.
        """
        for known, value in self.named_objects().values():
            if known == name:
                return value
        raise MismatchError(f'{name} does not exist')


def can_be_made(kind: type) -> bool:
    """Whether objects of a class are restored from attributes and content alone, without side effects when deleted."""
    if isinstance(kind, enum.EnumMeta):
        return True
    is_plain = type(kind) in (type, ABCMeta) and layout_of(kind) is not None
    return is_plain and not hasattr(kind, '__del__')


def acts(kind: type) -> bool:
    """Whether objects of a class run code during a step: envs, wrappers, and callables.

    Those of a library can be configured to do anything, such as a wrapper that calls a factory of envs.
    """
    is_env = any(hasattr(kind, name) for name in ('step', 'reset', 'step_async'))
    return is_env or any('__call__' in vars(base) for base in kind.__mro__)


def _note(found: dict[int, tuple[str, Any]], where: str, content: Mapping[str, Any]) -> None:
    for name, value in list(content.items()):
        if type(value) not in UNNAMED and not name.startswith('__'):
            found.setdefault(id(value), (f'{where}.{name}', value))


def _folder(module: str) -> str | None:
    """Returns the folder of a module that is a single file and not installed."""
    file = getattr(sys.modules.get(module), '__file__', None)
    if '.' in module or not isinstance(file, str):
        return None
    folder = os.path.dirname(os.path.abspath(file))
    installed = [sysconfig.get_paths()[name] for name in ('stdlib', 'platstdlib', 'purelib', 'platlib')]
    is_installed = folder in installed or os.path.basename(folder) in ('site-packages', 'dist-packages')
    return None if is_installed else folder
