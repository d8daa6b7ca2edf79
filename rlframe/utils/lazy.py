"""Modules that are imported at their first use, so that options and errors need no torch."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module until one of its attributes is read; what was read once is kept.

    Args:
        name: Dotted name of the module.
    """

    def __init__(self, name: str) -> None:
        self.__dict__['_name'] = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        self.__dict__[attribute] = value
        return value
