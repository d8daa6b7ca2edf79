"""Backends: where work runs, and their options next to those of collectors, evaluators and replay buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlframe.config.tree import Component, Tree, section_at
from rlframe.errors import ConfigError, RegistryError
from rlframe.registry import BACKEND_REGISTRY
from rlframe.utils.field import Field, Options, ResolvedConfig, defaults_of, raw_items

ROLES = {
    'collector': ('policy', 'collect', 'collector'),
    'evaluator': ('policy', 'eval', 'evaluator'),
    'replay_buffer': ('policy', 'other', 'replay_buffer'),
}
"""Components that run in a backend, with their sections."""
ERRORS = {'collector': 'collector_errors', 'evaluator': 'evaluator_errors', 'replay_buffer': 'buffer_errors'}
"""Methods of a backend that find the mistakes of a config in each role."""
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
    'replay_buffer': Field(
        LOCAL,
        type=str,
        doc="place where transitions are kept: 'local' is this process, 'ray' are actors, each with a shard of them",
        reaches='process',
    ),
}
"""The option that names the backend, of each role."""


class Elsewhere(Field):
    """An option that another backend has than the one that a section names."""


def with_backend(tree: Tree, part: Component, own: Options, errors: list[ConfigError]) -> Options:
    """Adds the options of the backend that a section names to those of its component.

    Options of other backends are added as ``Elsewhere``, so that errors can name them; ``refuse_elsewhere`` and
    ``drop_elsewhere`` remove them again. An unknown backend is an error, and its name is removed from the tree.

    Args:
        tree: Options set by the user.
        part: The component.
        own: Options of the component, which have precedence.
        errors: Mistakes are appended to it.
    """
    if part.name not in ROLES:
        return own
    kind = _find(section_at(tree, part.path), part, errors)
    options = {**(kind.options_of(part.name) if kind is not None else {}), **own}
    for backend in BACKEND_REGISTRY.names():
        for name, field in options_of(backend, part.name).items():
            if name not in options and isinstance(field, Field):
                options[name] = _as_elsewhere(field) if kind is not None else field
    return {**options, 'backend': BACKENDS[part.name]}


def _as_elsewhere(field: Field) -> Elsewhere:
    return Elsewhere(**{each.name: getattr(field, each.name) for each in dataclasses.fields(field)})


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


def refuse_elsewhere(tree: Tree, options: Options, before: Mapping[str, Any] | None) -> list[ConfigError]:
    """Takes options of other backends out of a tree.

    They are ignored if an override has replaced the backend that they were set for.

    Args:
        tree: Options set by the user.
        options: The schema.
        before: The tree without overrides; None if there are no overrides.

    Returns:
        An error for each of the others.
    """
    errors = []
    for role, path in ROLES.items():
        declared, section = section_at(options, path), section_at(tree, path)
        for name, value in raw_items(section):
            field = declared.get(name)
            if isinstance(field, Elsewhere) and isinstance(section, dict):
                del section[name]
                if not _was_replaced(name, value, section, before, path):
                    errors.append(_elsewhere(role, '.'.join(path), name, section.get('backend', LOCAL)))
    return errors


def drop_elsewhere(values: Tree, options: Options) -> None:
    """Takes options of other backends out of complete values and out of the schema."""
    for path in ROLES.values():
        declared, section = section_at(options, path), section_at(values, path)
        for name in [name for name, field in declared.items() if isinstance(field, Elsewhere)]:
            assert isinstance(declared, dict) and isinstance(section, dict)
            del declared[name], section[name]


def _was_replaced(
    name: str, value: Any, section: Tree, before: Mapping[str, Any] | None, path: tuple[str, ...]
) -> bool:
    old = section_at(before or {}, path)
    has_changed = section.get('backend', LOCAL) != old.get('backend', LOCAL)
    return before is not None and has_changed and name in old and bool(old[name] == value)


def _elsewhere(role: str, section: str, name: str, backend: str) -> ConfigError:
    having = [other for other in BACKEND_REGISTRY.names() if name in options_of(other, role)]
    names = ' and '.join(repr(other) for other in having)
    return ConfigError(
        f'an option of the backend {names}; this config has the backend {backend!r}',
        where=f'{section}.{name}',
        remedy=f'Leave it out, or set {section}.backend={having[0]!r}.',
    )


def backend_errors(known: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes that the backends of a config find.

    Args:
        known: Dotted keys to values, of those options that are possible alone.
    """
    errors: list[ConfigError] = []
    for role, path in ROLES.items():
        kind = _known_backend(known, '.'.join(path))
        if kind is not None:
            errors += getattr(kind, ERRORS[role])(known)
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
