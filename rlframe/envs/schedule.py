"""Attributes and methods of the training envs that a curriculum sets (``env.schedule``)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rlframe.envs.state_objects import layers_of
from rlframe.errors import ConfigError, IncompatibleError, RegistryError, nearest
from rlframe.registry import ENV_SCHEDULE_REGISTRY


def schedule_problem(value: Mapping[str, Any]) -> str:
    """Describes the first mistake in a value of ``env.schedule``; an empty string if there is none."""
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
    """Whether a schedule is empty."""
    return isinstance(value, Mapping) and not value


def first_values(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values before training, by name."""
    return {name: ENV_SCHEDULE_REGISTRY.build(rule, dict(rule)).first() for name, rule in schedule.items()}


def check_scheduled(env: Any, schedule: Mapping[str, Any]) -> None:
    """Checks that an env has each scheduled attribute or method, and sets the first values.

    Raises:
        ConfigError: If one is missing; with the nearest name.
        IncompatibleError: If setting a value fails.
    """
    for name in schedule:
        if not env.has_wrapper_attr(name):
            holders = [*layers_of(env), *getattr(env.unwrapped, 'live_games', ())]
            public = {each for holder in holders for each in dir(holder) if not each.startswith('_')}
            raise ConfigError(
                f'{type(env.unwrapped).__name__} has no attribute or method {name!r}',
                where=f'env.schedule.{name}',
                remedy=nearest(name, [each for each in public if env.has_wrapper_attr(each)]).strip(),
            )
    apply(env, first_values(schedule))


def apply(env: Any, values: Mapping[str, Any]) -> None:
    """Sets attributes of an env or of a wrapper around it, and calls methods with the value, before an episode.

    Raises:
        IncompatibleError: If setting the attribute or calling the method raises.
    """
    for name, value in values.items():
        own = copy.deepcopy(value)  # an env may change it
        try:
            found = env.get_wrapper_attr(name)
            if callable(found):
                found(own)
            else:
                env.set_wrapper_attr(name, own)
        except Exception as error:
            raise IncompatibleError(
                f'{type(env.unwrapped).__name__}.{name} does not take the value: {type(error).__name__}: {error}',
                where=f'env.schedule.{name}',
                got=value,
                expected='an attribute that can be set, or a method that takes the value alone',
            ) from error
