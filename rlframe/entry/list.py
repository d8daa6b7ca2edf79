"""``rlframe list``: shows the registered components and their options, without importing torch."""

from __future__ import annotations

import argparse
import inspect

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlframe.app.explain import fields_of, registry_of, told
from rlframe.pipeline.saying import program
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY, PLUGINS, REGISTRIES
from rlframe.utils.field import REQUIRED

HELP = 'show the registered components, or the options of one'
EXAMPLES = ('', 'policy', 'policy dqn', '--plugins')
COMPONENTS = (
    'env',
    'env_manager',
    'policy',
    'model',
    'collector',
    'evaluator',
    'backend',
    'learner',
    'learner_hook',
    'hook',
    'replay_buffer',
    'commander',
    'parallel_collector',
    'comm_collector',
    'comm_learner',
    'logger',
    'eval_metric',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument('kind', nargs='?', choices=COMPONENTS, help='show this kind only')
    parser.add_argument('name', nargs='?', help='show the options of this component')
    parser.add_argument('--plugins', action='store_true', help='show the plug-ins of installed packages')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    return show_plugins() if args.plugins else show(args)


class Listing(Console):
    """Standard output; what happens when nobody reads it is up to the command line."""

    def on_broken_pipe(self) -> None:
        """Passes the error on, where rich would end the process."""
        raise BrokenPipeError


def show(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    console = Listing(highlight=False)
    if args.name:
        _show_options(console, args.kind, args.name)
        return 0
    PLUGINS.load()
    table = Table('kind', 'registered names', box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for kind, registry in REGISTRIES.items():
        if args.kind in (None, kind):
            table.add_row(kind, ', '.join(registry.names()))
        if args.kind in (None, kind) and kind == 'commander':
            table.add_row('  in parallel mode', ', '.join(PARALLEL_COMMANDER_REGISTRY.names()))
    console.print(table)
    console.print(f'\nOptions of one: {program()} list KIND NAME')
    return 0


def show_plugins() -> int:
    """Shows the plug-ins of installed packages, and returns the exit code."""
    console = Listing(highlight=False)
    found = PLUGINS.all()
    if not found:
        console.print(
            'No installed package has an entry point of the group rlframe.registry. See docs/hooks.md.'
        )
        return 0
    table = Table('plug-in', 'package', 'version', 'state', box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for each in found:
        state = (
            f'skipped: {each.problem}'
            if each.problem
            else f'loaded: {", ".join(each.adds) or "adds nothing"}'
        )
        table.add_row(*map(Text, (each.name, each.package, each.version, state)))
    console.print(table)
    return 0


def _show_options(console: Console, kind: str, name: str) -> None:
    cls = registry_of(kind, name).get(name)
    first_line = (inspect.getdoc(cls) or '').partition('\n')[0]
    console.print(Text.assemble((f'{kind} {name!r}', 'bold'), f' ({cls.__module__}): {first_line}'))
    fields = fields_of(kind, name)
    for key, field in fields:
        default = '(required)' if field.default is REQUIRED else f'= {field.default!r}'
        console.print(Text.assemble((key, 'bold'), f' {default}'), soft_wrap=True)
        console.print(
            Padding(Text(f'{field.expected()}: {told(field)}'.rstrip(': ')), (0, 0, 0, 4), expand=False)
        )
    if not fields:
        console.print('It declares no options of its own.')
