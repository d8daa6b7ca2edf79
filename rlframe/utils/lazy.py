"""Imports modules at their first use, so that options and errors need no torch."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any


class LazyModule:
    """Stands for a module until one of its attributes is read; attributes are cached.

    Args:
        name: Dotted name of the module.
    """

    def __init__(self, name: str) -> None:
        self.__dict__['_name'] = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        self.__dict__[attribute] = value
        return value


if TYPE_CHECKING:
    import torch as torch
else:
    torch = LazyModule('torch')


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose names are imported at their first use.

    The names are those that the package's stub, ``__init__.pyi``, imports; type checkers read the same list.

    Args:
        package: Dotted name of the package.
        file: Its ``__file__``.

    Source:
        lazy_loader's ``attach_stub`` (Scientific Python, SPEC 1), for the idea.
    """
    stub = ast.parse(Path(file).with_suffix('.pyi').read_text(encoding='utf-8'))
    modules = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(importlib.import_module(str(modules[name])), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names, sorted(modules)


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
