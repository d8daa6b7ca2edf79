"""Attributes and methods of the training envs that a curriculum sets (``env.schedule``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.errors import ConfigError, RegistryError, nearest
from rlframe.registry import ENV_SCHEDULE_REGISTRY


def schedule_problem(value: Mapping[str, Any]) -> str:
    """Returns what is wrong with a value of ``env.schedule``, or an empty string."""
    for name, rule in value.items():
        try:
            _check_rule(rule)
        except (ConfigError, RegistryError) as error:
            return f'rules by name of an attribute or a method of the env. {name}: {" ".join(str(error).split())}'
    return ''


def _check_rule(given: Any) -> None:
    """Raises ``ConfigError`` or ``RegistryError`` if a value is no rule."""
    if not isinstance(given, Mapping) or not isinstance(given.get('type'), str):
        names = '|'.join(ENV_SCHEDULE_REGISTRY.names())
        raise ConfigError('bad rule', got=given, expected=f'dict(type={names}, OPTION=...)')
    cls: Any = ENV_SCHEDULE_REGISTRY.get(given['type'])
    cls.resolve_config(given)


def is_no_schedule(value: Any) -> bool:
    """Whether a value of the option calls nothing of an env."""
    return isinstance(value, Mapping) and not value


def check_scheduled(env: Any, schedule: Mapping[str, Any]) -> None:
    """Checks that an env has what is scheduled.

    Raises:
        ConfigError: If not; with the nearest name.
    """
    for name in schedule:
        if not env.has_wrapper_attr(name):
            known = [each for each in dir(env.unwrapped) if not each.startswith('_')]
            raise ConfigError(
                f'{type(env.unwrapped).__name__} has no attribute or method {name!r}',
                where=f'env.schedule.{name}',
                remedy=nearest(name, known).strip(),
            )


def apply(env: Any, values: Mapping[str, Any]) -> None:
    """Sets attributes of an env or of a wrapper around it, and calls methods with the value, before an episode."""
    for name, value in values.items():
        found = env.get_wrapper_attr(name)
        if callable(found):
            found(value)
        else:
            env.set_wrapper_attr(name, value)
