"""``rlframe list``: shows the registered components and their options, without importing torch."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from rlframe.registry import REGISTRIES
from rlframe.utils.field import Field


def show(args: argparse.Namespace) -> int:
    """Does what the command line asks for and returns the exit code."""
    console = Console()
    if args.name:
        console.print(_options_table(args.kind, args.name))
        return 0
    table = Table('kind', 'registered names')
    for kind, registry in REGISTRIES.items():
        if args.kind in (None, kind):
            table.add_row(kind, ', '.join(registry.names()))
    console.print(table)
    return 0


def _options_table(kind: str, name: str) -> Table:
    table = Table('option', 'default', 'accepted', 'meaning', title=f'{kind} {name}')
    cls = REGISTRIES[kind].get(name)
    for key, field in _flat(cls.config_fields() if hasattr(cls, 'config_fields') else {}):
        table.add_row(key, repr(field.default), field.expected(), field.doc)
    return table


def _flat(options: Mapping[str, Any], prefix: str = '') -> list[tuple[str, Field]]:
    rows = []
    for name, option in options.items():
        rows += [(prefix + name, option)] if isinstance(option, Field) else _flat(option, f'{prefix}{name}.')
    return rows
