"""``rlframe list``: shows the registered components and their options, without importing torch."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlframe.config.tree import ALL_COMPONENTS
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY, REGISTRIES, Registry
from rlframe.utils.field import REQUIRED, Field

SECTIONS = {'model': 'policy.model'} | {part.name: part.key for part in ALL_COMPONENTS}
"""Kind of component to its section in a config; learner hooks have no section."""


def show(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    console = Console(highlight=False)
    if args.name:
        _show_options(console, args.kind, args.name)
        return 0
    table = Table('kind', 'registered names', box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for kind, registry in REGISTRIES.items():
        if args.kind in (None, kind):
            table.add_row(kind, ', '.join(registry.names()))
        if args.kind in (None, kind) and kind == 'commander':
            table.add_row('  in parallel mode', ', '.join(PARALLEL_COMMANDER_REGISTRY.names()))
    console.print(table)
    console.print('\nOptions of one: python -m rlframe.entry list KIND NAME')
    return 0


def _show_options(console: Console, kind: str, name: str) -> None:
    cls = registry_of(kind, name).get(name)
    first_line = (inspect.getdoc(cls) or '').partition('\n')[0]
    console.print(Text.assemble((f'{kind} {name!r}', 'bold'), f' ({cls.__module__}): {first_line}'))
    fields = cls.config_fields() if hasattr(cls, 'config_fields') else {}
    for key, field in flat_fields(fields, f'{SECTIONS[kind]}.' if kind in SECTIONS else ''):
        default = '(required)' if field.default is REQUIRED else f'= {field.default!r}'
        console.print(Text.assemble((key, 'bold'), f' {default}'), soft_wrap=True)
        console.print(
            Padding(Text(f'{field.expected()}: {told(field)}'.rstrip(': ')), (0, 0, 0, 4), expand=False)
        )
    if not fields:
        console.print('It declares no options of its own.')


def registry_of(kind: str, name: str) -> Registry[Any]:
    """Returns the registry of a component: one of the two for a commander, whose name decides."""
    is_parallel = kind == 'commander' and name in PARALLEL_COMMANDER_REGISTRY
    return PARALLEL_COMMANDER_REGISTRY if is_parallel else REGISTRIES[kind]


def told(field: Field) -> str:
    """Returns the description of an option and its reach."""
    return f'{field.doc} (reaches: {field.reaches})'.lstrip() if field.reaches else field.doc


def flat_fields(options: Mapping[str, Any], prefix: str = '') -> list[tuple[str, Field]]:
    """Returns the dotted key of every option, in the order of declaration, sections behind plain options."""
    rows = [(prefix + name, option) for name, option in options.items() if isinstance(option, Field)]
    for name, option in options.items():
        if not isinstance(option, Field):
            rows += flat_fields(option, f'{prefix}{name}.')
    return rows
