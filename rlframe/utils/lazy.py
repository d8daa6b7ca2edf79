"""Imports modules at their first use, so that options and errors need no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


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


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a package whose names are imported at their first use.

    Args:
        package: Dotted name of the package.
        modules: Public names to the dotted names of the modules that define them.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(importlib.import_module(modules[name]), name)

    return get
