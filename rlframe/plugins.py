"""Plug-ins: components of other installed packages, found by their entry points.

A package declares a module, or a function, under the entry point group ``rlframe.plugins``. Plug-ins are imported when a
registry does not know a name, or to list them; so they cost nothing otherwise.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from importlib import metadata

GROUP = 'rlframe.plugins'
"""Group of the entry points."""
logger = logging.getLogger(GROUP)


@dataclasses.dataclass
class Plugin:
    """An entry point of an installed package."""

    name: str
    """Name of the entry point."""
    value: str
    """What it names: ``module`` or ``module:function``."""
    package: str
    """The package that declares it."""
    version: str
    """Version of that package."""
    problem: str = ''
    """Why it could not be loaded; empty if it was."""
    adds: list[str] = dataclasses.field(default_factory=list)
    """The components that it registered, such as ``policy my_dqn``."""


class Plugins:
    """The plug-ins of this process, each loaded at most once."""

    def __init__(self) -> None:
        self._found: list[Plugin] | None = None
        self._told: list[Plugin] = []
        self._loading: Plugin | None = None
        self._lock = threading.RLock()

    def load(self) -> None:
        """Loads all plug-ins, unless that was done, and warns once of each broken one, which is skipped."""
        for each in self.all():
            if each.problem and each not in self._told:
                self._told.append(each)
                told = (each.name, each.package, each.version, each.problem)
                logger.warning('the plug-in %r of %s %s is skipped: %s', *told)

    def all(self) -> list[Plugin]:
        """Returns all plug-ins, after loading them: a module is imported, and a function is called without arguments."""
        with self._lock:
            if self._found is None:
                self._found = []  # a plug-in that looks up a name must not load the plug-ins again
                for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
                    self._found.append(self._load(point))
            return self._found

    def _load(self, point: metadata.EntryPoint) -> Plugin:
        package = point.dist
        name, version = (package.name, package.version) if package is not None else ('?', '?')
        self._loading = found = Plugin(point.name, point.value, name, version)
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except (Exception, SystemExit) as error:
            found.problem = ' '.join(f'{type(error).__name__}: {error}'.split())
        finally:
            self._loading = None
        return found

    def registered(self, kind: str, name: str) -> None:
        """Notes a component, which belongs to the plug-in that is being loaded, if any."""
        if self._loading is not None:
            self._loading.adds.append(f'{kind} {name}')


PLUGINS = Plugins()
"""The plug-ins of this process, which all registries share."""
