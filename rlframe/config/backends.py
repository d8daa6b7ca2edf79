"""Backends: where work runs, and their options next to those of collectors and evaluators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.config.tree import Component, Tree, section_at
from rlframe.errors import ConfigError, RegistryError
from rlframe.registry import BACKEND_REGISTRY
from rlframe.utils.field import Field, Options, ResolvedConfig, defaults_of

ROLES = {'collector': ('policy', 'collect', 'collector'), 'evaluator': ('policy', 'eval', 'evaluator')}
"""Components that run in a backend, with their sections."""
LOCAL = 'local'
"""The backend of sections that name none."""
BACKENDS = {
    'collector': Field(
        LOCAL,
        type=str,
        doc="place where envs are stepped: 'local' is this process, 'ray' are actors, each with envs and a policy of its own",
        may_change=True,
        reaches='process',
    ),
    'evaluator': Field(
        LOCAL,
        type=str,
        doc="place where the policy is evaluated: 'local' is this process, and training waits; 'ray' is an actor, while training continues",
        reaches='process',
    ),
}
"""The option that names the backend, of each role."""


def with_backend(tree: Tree, part: Component, own: Options, errors: list[ConfigError]) -> Options:
    """Adds the options of the backend that a section names to those of its collector or evaluator.

    An unknown backend is an error: its name is removed from the tree, and the options of all backends are accepted.

    Args:
        tree: Options set by the user.
        part: The component.
        own: Options of the collector or evaluator, which have precedence.
        errors: Mistakes are appended to it.
    """
    if part.name not in ROLES:
        return own
    kind = _find(section_at(tree, part.path), part, errors)
    kinds = [BACKEND_REGISTRY.get(name) for name in BACKEND_REGISTRY.names()] if kind is None else [kind]
    offered = {name: field for each in kinds for name, field in each.options_of(part.name).items()}
    return {**offered, **own, 'backend': BACKENDS[part.name]}


def _find(section: Mapping[str, Any], part: Component, errors: list[ConfigError]) -> Any:
    """Returns the backend that a section names; None, and the name taken out, if it is not found."""
    name, where = section.get('backend', LOCAL), f'{part.key}.backend'
    try:
        if isinstance(name, str):
            return BACKEND_REGISTRY.get(name)
        names = f'one of {BACKEND_REGISTRY.names()}'
        errors.append(ConfigError('bad value', where=where, got=name, expected=names))
    except RegistryError as error:
        if not any(earlier.where.endswith('import_names') for earlier in errors):
            errors.append(ConfigError(error.message, where=where, remedy=error.remedy))
    if isinstance(section, dict):
        section.pop('backend', None)
    return None


def options_of(backend: Any, role: str) -> Options:
    """Returns the options that a backend has for a role; none if it is not registered."""
    if not isinstance(backend, str) or backend not in BACKEND_REGISTRY:
        return {}
    return BACKEND_REGISTRY.get(backend).options_of(role)


def drop_replaced_backend(tree: Tree, before: Tree) -> None:
    """Removes options of a backend that an override replaced.

    Args:
        tree: Options set by the user, including overrides.
        before: The same without overrides.
    """
    for role, path in ROLES.items():
        section, old = section_at(tree, path), section_at(before, path)
        was, now = (options_of(each.get('backend', LOCAL), role) for each in (old, section))
        for name in was.keys() & old.keys() - now.keys():
            if isinstance(section, dict) and section.get(name) == old[name]:
                section.pop(name, None)


def backend_errors(known: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes that the backends of a config find.

    Args:
        known: Dotted keys to values, of those options that are possible alone.
    """
    errors: list[ConfigError] = []
    for role, path in ROLES.items():
        kind = _known_backend(known, '.'.join(path))
        if kind is not None:
            errors += kind.collector_errors(known) if role == 'collector' else kind.evaluator_errors(known)
    return errors


def collector_num(known: Mapping[str, Any]) -> int:
    """Returns the number of collectors that share the target of a call."""
    prefix = '.'.join(ROLES['collector'])
    kind = _known_backend(known, prefix)
    start = f'{prefix}.'
    section = {key.removeprefix(start): value for key, value in known.items() if key.startswith(start)}
    return int(kind.collector_num(section)) if kind is not None else 1


def _known_backend(known: Mapping[str, Any], section: str) -> Any:
    name = known.get(f'{section}.backend')
    return BACKEND_REGISTRY.get(name) if isinstance(name, str) and name in BACKEND_REGISTRY else None


def backend_defaults() -> dict[str, Field]:
    """Returns the options of all registered backends, by dotted key."""
    found: dict[str, Field] = {}
    for role, path in ROLES.items():
        start = '.'.join(path)
        for backend in BACKEND_REGISTRY.names():
            own = options_of(backend, role).items()
            found |= {f'{start}.{name}': field for name, field in own if isinstance(field, Field)}
        found[f'{start}.backend'] = BACKENDS[role]
    return found


def is_interchangeable(backend: Any, section: Mapping[str, Any]) -> bool:
    """Whether a run that collects by a backend, with these options, can be resumed with another such backend."""
    if not isinstance(backend, str) or backend not in BACKEND_REGISTRY:
        return False
    complete = {**defaults_of(options_of(backend, 'collector')), **section}
    return BACKEND_REGISTRY.get(backend).is_interchangeable(ResolvedConfig(complete))
