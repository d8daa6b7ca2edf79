"""Registry: maps the names in a config to classes. All registries of rlframe are in ``registry.py``.

A built-in component is registered by the name of its module, which is imported when the component is first used. So
listing names imports nothing. Before an unknown name is rejected, plug-ins are loaded (``plugins.py``).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from rlframe.errors import ConfigError, InterfaceError, RegistryError
from rlframe.plugins import PLUGINS

T = TypeVar('T')
C = TypeVar('C', bound=type)


def nearest(word: str, known: Any) -> str:
    """Returns `` Did you mean 'x'?`` for the known word closest to ``word``, or an empty string."""
    names = {str(name).lower(): str(name) for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f' Did you mean {names[close[0]]!r}?' if close else ''


def is_list_of_names(names: Any) -> bool:
    """Whether a value is a list of strings, as ``import_names`` must be."""
    return isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)


def import_modules(names: Sequence[str]) -> None:
    """Imports the modules that register custom components.

    Raises:
        ConfigError: If it is not a list of names, or a module does not exist. Errors inside a module pass unchanged.
    """
    if not is_list_of_names(names):
        raise ConfigError('bad value', where='import_names', got=names, expected='a list of module names')
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + '.')):
                raise
            raise ConfigError(
                f'no module named {name!r}',
                where='import_names',
                remedy='Put its folder on PYTHONPATH, or start in that folder.',
            ) from error


def with_type(cfg: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Returns a section whose type may lie under a key of DI-engine, such as ``learner_type``, with ``type``."""
    if key not in cfg:
        return cfg
    own = {name: value for name, value in cfg.items() if name != key}
    return own if 'type' in own else {**own, 'type': cfg[key]}


class Registry(Generic[T]):
    """Maps the names of one kind of component to classes, whose instances are of type ``T``.

    Args:
        kind: What the names stand for, in words, for errors.
        builtin: Maps each built-in name to the module that registers it.
        interface: ``module:Class`` of the interface that the classes implement, if any.
    """

    def __init__(self, kind: str, builtin: Mapping[str, str] | None = None, interface: str = '') -> None:
        self.kind, self.interface = kind, interface
        self._builtin = dict(builtin or {})
        self._classes: dict[str, type[T]] = {}

    @overload
    def register(
        self, name: str | None = None, module: None = None, force_overwrite: bool = False
    ) -> Callable[[C], C]: ...
    @overload
    def register(self, name: str | None, module: C, force_overwrite: bool = False) -> C: ...
    def register(
        self, name: str | None = None, module: C | None = None, force_overwrite: bool = False
    ) -> C | Callable[[C], C]:
        """Registers a class under a name; without a class, acts as a decorator.

        Args:
            name: Name in configs; by default, the name of the class.
            module: The class.
            force_overwrite: Whether to replace another class of that name, including a built-in one.

        Raises:
            RegistryError: If another class has that name; with the location of both.
        """
        if module is None:
            return lambda cls: self.register(name, cls, force_overwrite)
        name = module.__name__ if name is None else name
        if not force_overwrite:
            if self._is_replaced(name) and self._builtin[name] == module.__module__:
                return module  # a built-in class, imported after its place was taken
            self._check_free(name, module)
        self._classes[name] = module
        PLUGINS.registered(self.kind, name)
        return module

    def _check_free(self, name: str, cls: type) -> None:
        taken = self._classes.get(name)
        if taken is None and self._builtin.get(name, cls.__module__) != cls.__module__:
            taken = self.get(name)
        if taken is not None and _place(taken) != _place(cls):
            raise RegistryError(
                f'{self.kind} {name!r} is registered twice: {_place(taken)} and {_place(cls)}',
                remedy='Give one of them another name, or replace the first by register(..., force_overwrite=True).',
            )

    def _is_replaced(self, name: str) -> bool:
        """Whether another class replaces the built-in one."""
        cls = self._classes.get(name)
        return cls is not None and self._builtin.get(name, cls.__module__) != cls.__module__

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        return sorted({*self._builtin, *self._classes})

    def query(self) -> list[str]:
        """Returns all names, sorted; DI-engine's name for ``names``."""
        return self.names()

    def query_details(self, aliases: Iterable[str] | None = None) -> dict[str, tuple[str, int]]:
        """Returns the file and the line where each class is defined; this imports the built-in ones.

        Args:
            aliases: Names to look up; by default, all.

        Raises:
            RegistryError: If a name is unknown.
        """
        names = self.names() if aliases is None else aliases
        return {name: _source(self.get(name)) for name in names}

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._builtin

    def __getitem__(self, name: str) -> type[T]:
        return self.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def registered_in(self, module: str) -> dict[str, type[T]]:
        """Returns the classes that a module has registered."""
        return {name: cls for name, cls in self._classes.items() if cls.__module__ == module}

    def is_builtin(self, name: str) -> bool:
        """Whether ``name`` is a built-in component that has not been replaced."""
        return name in self._builtin and not self._is_replaced(name)

    def spelled(self, name: str) -> str:
        """Returns the only name that differs from ``name`` in upper and lower case at most; ``name`` if there is none."""
        alike = [known for known in self.names() if known.lower() == name.lower()]
        return alike[0] if len(alike) == 1 and name not in self else name

    def get(self, name: str) -> type[T]:
        """Returns the class called ``name``.

        Raises:
            RegistryError: If the name is unknown; with the closest name and all names.
        """
        if name not in self._classes and name in self._builtin:
            module = importlib.import_module(self._builtin[name])
            if name not in self._classes:
                raise RegistryError(f'{module.__name__} does not register the {self.kind} {name!r}')
        if name not in self._classes:
            PLUGINS.load()
        if name not in self._classes:
            own = sorted(set(self._classes) - set(self._builtin))
            raise RegistryError(
                f'unknown {self.kind} {name!r}.{nearest(str(name), self.names())}'
                f' Registered: {sorted(self._builtin)}; imported: {own}',
                remedy='Is the module that registers it named in import_names?',
            )
        return self._classes[name]

    def check_interface(self, name: str) -> None:
        """Checks that a class has all methods of its interface; built-in classes are not checked.

        Raises:
            InterfaceError: If methods are missing; with their names.
        """
        if not self.interface or self.is_builtin(name):
            return
        module, _, interface_name = self.interface.partition(':')
        interface, cls = getattr(importlib.import_module(module), interface_name), self.get(name)
        missing = sorted(getattr(cls, '__abstractmethods__', ()))
        if not issubclass(cls, interface):
            defined = {name for base in cls.__mro__ for name in vars(base)}
            missing = [name for name in _methods_of(interface) if name not in defined]
        if missing:
            raise InterfaceError(
                f'{cls.__qualname__} ({_place(cls)}) lacks {", ".join(missing)} of the interface {interface_name}',
                remedy=f'docs/interfaces.md and help({module}.{interface_name}) say what each has to do.',
            )

    def get_cls(self, cfg: Mapping[str, Any]) -> type[T]:
        """Returns the class named by ``cfg.type``, after importing ``cfg.import_names``."""
        import_modules(cfg.get('import_names') or [])
        if 'type' not in cfg:
            raise RegistryError(f"the config of a {self.kind} needs a 'type'; one of {self.names()}")
        return self.get(cfg['type'])

    def build(self, cfg: str | Mapping[str, Any], /, *args: Any, **kwargs: Any) -> T:
        """Returns an instance of a class; errors of its constructor pass unchanged.

        Args:
            cfg: The name of the class, or a config whose ``type`` is that name.
            args: Arguments of its constructor.
            kwargs: Keyword arguments of its constructor.

        Raises:
            InterfaceError: If the class lacks methods of its interface.
        """
        cls = self.get(cfg) if isinstance(cfg, str) else self.get_cls(cfg)
        self.check_interface(cfg if isinstance(cfg, str) else cfg['type'])
        return cls(*args, **kwargs)


def _methods_of(interface: type) -> list[str]:
    """Returns the names of the abstract and of the public methods and properties of an interface."""
    names = {
        name: value
        for base in reversed(interface.__mro__)
        for name, value in vars(base).items()
        if base.__module__.startswith('rlframe.worker')
    }
    kinds = (classmethod, property)
    public = {
        name
        for name, value in names.items()
        if not name.startswith('_') and (callable(value) or isinstance(value, kinds))
    }
    return sorted(public | getattr(interface, '__abstractmethods__', frozenset()))


def _place(cls: type) -> str:
    """Returns ``file:line`` of a class, or its dotted name if it has no source."""
    file, line = _source(cls)
    return f'{file}:{line}' if line else file


def _source(cls: type) -> tuple[str, int]:
    """Returns the file and the line of a class, or its dotted name and 0 if it has no source."""
    try:
        return str(inspect.getsourcefile(cls)), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return f'{cls.__module__}.{cls.__qualname__}', 0
