"""An option whose value is a list of registered components, such as the loggers of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rlframe.errors import NO_LITERAL, ConfigError, RegistryError
from rlframe.utils.field import Configurable, Field

if TYPE_CHECKING:
    from rlframe.registry import Registry

Chosen = tuple[str, dict[str, Any]]
"""Name of a component, and the options that the user set."""


def chosen(value: Any) -> list[Chosen]:
    """Returns the components that a value of such an option names, without looking them up.

    Args:
        value: A list of names and of ``dict(type=..., ...)``; or, as on the command line, the names in one text: ``csv,wandb``
            or ``[csv, wandb]``; None is no component.

    Raises:
        ConfigError: If it is something else.
    """
    if value is None:
        return []
    if isinstance(value, str):
        if set('(){}=') & set(value):
            raise ConfigError(NO_LITERAL)
        value = [name.strip().strip('\'"') for name in value.strip().strip('[]').split(',') if name.strip()]
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        raise ConfigError('It is no list.')
    return [_one(item) for item in value]


def _one(item: Any) -> Chosen:
    if isinstance(item, str):
        return item, {}
    if not isinstance(item, Mapping):
        raise ConfigError(f'{item!r} is neither a name nor a dict')
    options = dict(item)
    name = options.pop('type', None)
    if not isinstance(name, str):
        raise ConfigError(f'{item!r} has no type')
    return name, options


@dataclasses.dataclass(frozen=True)
class ComponentList(Field):
    """An option that is a list of components of one kind, each at most once.

    Args:
        registry: The registry of their classes, which are ``Configurable``.
    """

    registry: Registry[Any] | None = None
    reads_text: ClassVar[bool] = True

    def expected(self) -> str:
        """Describes the accepted values in words."""
        assert self.registry is not None
        return f'list of {self.registry.kind}s: names, or dict(type=NAME, OPTION=...)'

    def problem(self, value: Any) -> str:
        """Describes the valid values and the mistake in a value; returns an empty string if it is valid."""
        try:
            self.classes(value)
        except RegistryError as error:
            return f'{self.expected()}. {error.message}'
        except ConfigError as error:
            return f'{self.expected()}. {" ".join(str(error).split())}'
        return ''

    def convert(self, value: Any) -> Any:
        """Returns the list with a name for each component without options, and a dict for each of the others."""
        return [{'type': name, **options} if options else name for name, options in chosen(value)]

    def classes(self, value: Any) -> list[tuple[str, Any, dict[str, Any]]]:
        """Returns name, class and own options of each component.

        Raises:
            ConfigError: If a component is unknown or named twice, or an option of it is invalid.
        """
        assert self.registry is not None
        found: list[tuple[str, Any, dict[str, Any]]] = []
        for name, options in chosen(value):
            cls: Any = self.registry.get(name)
            self.registry.check_interface(name)
            if not issubclass(cls, Configurable):
                raise ConfigError(f'{name!r} has no options: it should be a subclass of Configurable')
            if 'import_names' in options:
                raise ConfigError(f'import_names of {name!r} belongs in create_config')
            cls.resolve_config(options)
            if name in [other for other, *_ in found]:
                raise ConfigError(f'{name!r} is named twice')
            found.append((name, cls, options))
        return found

    def reach_of(self, value: Any) -> str:
        """Returns what the components of a foreign config can reach: 'code' if one does not come with rlframe."""
        assert self.registry is not None
        try:
            found = chosen(value)
        except ConfigError:
            return 'code'
        if not all(self.registry.is_builtin(name) for name, _ in found):
            return 'code'
        return next((reach for name, options in found if (reach := self._reach_of_one(name, options))), '')

    def _reach_of_one(self, name: str, options: Mapping[str, Any]) -> str:
        assert self.registry is not None
        cls: Any = self.registry.get(name)
        fields = cls.config_fields()
        if cls.reaches:
            return str(cls.reaches)
        if not options.keys() <= fields.keys():
            return 'code'
        return next((reach for key in options if (reach := fields[key].reach_of(options[key]))), '')
