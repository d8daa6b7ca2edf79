"""All declared options, with the components that declare them; neither torch nor gymnasium is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rlframe.config.backends import BACKENDS, ROLES, options_of
from rlframe.config.parallel.options import PARALLEL_FIELDS
from rlframe.config.schema import HOOKS, TOP
from rlframe.config.tree import ALL_COMPONENTS, PARALLEL
from rlframe.registry import BACKEND_REGISTRY, PARALLEL_COMMANDER_REGISTRY, REGISTRIES, Registry
from rlframe.utils.field import REQUIRED, Field

SECTIONS = {'model': 'policy.model'} | {part.name: part.key for part in ALL_COMPONENTS}
"""Kind of component to its section in a config; learner hooks have no section."""
RUN = 'every run'
"""Who declares the options that belong to no component."""


class Declared(NamedTuple):
    """An option as one component declares it."""

    key: str
    """Dotted key."""
    component: str
    """Kind and name of the component, such as ``policy dqn``."""
    field: Field
    """The declaration."""


def flat_fields(options: Mapping[str, Any], prefix: str = '') -> list[tuple[str, Field]]:
    """Returns the dotted key of every option, in the order of declaration, sections behind plain options."""
    rows = [(prefix + name, option) for name, option in options.items() if isinstance(option, Field)]
    for name, option in options.items():
        if not isinstance(option, Field):
            rows += flat_fields(option, f'{prefix}{name}.')
    return rows


def told(field: Field) -> str:
    """Returns the description of an option and its reach."""
    return f'{field.doc} (reaches: {field.reaches})'.lstrip() if field.reaches else field.doc


def registry_of(kind: str, name: str) -> Registry[Any]:
    """Returns the registry of a component: one of the two for a commander, whose name decides."""
    is_parallel = kind == 'commander' and name in PARALLEL_COMMANDER_REGISTRY
    return PARALLEL_COMMANDER_REGISTRY if is_parallel else REGISTRIES[kind]


def names_of(kind: str) -> list[str]:
    """Returns the registered names of a kind, in serial and in parallel mode."""
    names = REGISTRIES[kind].names()
    return [*names, *PARALLEL_COMMANDER_REGISTRY.names()] if kind == 'commander' else names


def fields_of(kind: str, name: str) -> list[tuple[str, Field]]:
    """Returns the dotted keys and the declarations of a component's own options."""
    if kind == 'model':  # policies declare the options of their networks; a custom one declares its own
        registry = REGISTRIES[kind]
        if registry.is_builtin(name):
            return []
    cls: Any = registry_of(kind, name).get(name)
    fields = cls.config_fields() if hasattr(cls, 'config_fields') else {}
    section = f'{HOOKS}.{name}' if kind == 'hook' else SECTIONS.get(kind, '')
    return flat_fields(fields, f'{section}.' if section else '')


def all_declared() -> list[Declared]:
    """Returns every option of rlframe and of the registered components."""
    rows = [Declared(key, RUN, field) for key, field in flat_fields(TOP)]
    rows += [Declared(*row) for row in _in_parallel()]
    for kind in REGISTRIES:
        if kind in SECTIONS:
            rows += [_type_of(kind, SECTIONS[kind])]
            rows += [
                Declared(key, f'{kind} {name}', field)
                for name in names_of(kind)
                for key, field in fields_of(kind, name)
            ]
    for name in names_of('hook'):
        rows += [Declared(key, f'hook {name}', field) for key, field in fields_of('hook', name)]
    return [*rows, *_of_backends()]


def _in_parallel() -> Iterable[tuple[str, str, Field]]:
    for key, field in flat_fields(PARALLEL_FIELDS, f'{PARALLEL}.'):
        yield key, 'parallel mode', field


def _type_of(kind: str, section: str) -> Declared:
    """Returns the option that chooses the class of a section."""
    default = next((part.default for part in ALL_COMPONENTS if part.name == kind), None)
    names = tuple(names_of(kind))
    doc = f'which {kind.replace("_", " ")}; also written as {kind}.type, or in create_config.{kind}'
    return Declared(f'{section}.type', RUN, Field(default, type=str, choices=names, doc=doc))


def _of_backends() -> list[Declared]:
    rows = []
    for role, path in ROLES.items():
        start = '.'.join(path)
        rows.append(Declared(f'{start}.backend', RUN, BACKENDS[role]))
        for name in BACKEND_REGISTRY.names():
            own = flat_fields(options_of(name, role), f'{start}.')
            rows += [Declared(key, f'backend {name}', field) for key, field in own]
    return rows


def plain(value: Any) -> Any:
    """Returns a value that JSON can express: itself, or its text."""
    if value is REQUIRED:
        return None
    if isinstance(value, Mapping):
        return {str(name): plain(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    is_finite = not isinstance(value, float) or abs(value) < float('inf')
    return (
        value if value is None or (isinstance(value, bool | int | float | str) and is_finite) else str(value)
    )
