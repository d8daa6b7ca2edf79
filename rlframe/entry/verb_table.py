"""The verbs of the command line. Only the module of the verb that was given is imported."""

from __future__ import annotations

import argparse
import importlib
from typing import Protocol, cast

GROUPS: dict[str, dict[str, str]] = {
    'train and use a policy': {
        'train': 'train a policy in an env, or by a config (the default verb)',
        'tune': 'search over the options of a config with Ray Tune',
        'eval': 'score a checkpoint on episodes that training never saw',
        'play': 'show a trained policy in a window, as text, or as a film',
        'export': 'write a trained policy for use without its config and env',
    },
    'look at results': {
        'plot': 'draw the curves of one or many runs',
        'compare': 'compare runs: options, scores with intervals, steps to the goal',
        'report': 'write one HTML page about a run, which needs no network',
    },
    'write and check your own': {
        'new': 'begin your own config, policy, model, hook, env or other part',
        'import-ding': 'convert a config of DI-engine, and list all changes with reasons',
        'check-config': 'report all mistakes of a config at once, or describe its run',
        'check-env': 'check an env: its mistakes, its speed, and the policies that fit',
    },
    'look things up': {
        'list': 'show the registered components, or the options of one',
        'explain': 'describe an option: values, default, unit, value in a config',
    },
}
"""Heading of a group of verbs to its verbs; each verb with its help in one line, the ``HELP`` of its module."""
VERBS = tuple(verb for group in GROUPS.values() for verb in group)


class Verb(Protocol):
    """A module of ``rlframe.entry``, whose name is the verb with underscores for hyphens.

    It may have a function ``check(parser, args)`` that ends the process with a usage message if arguments do not go together.
    """

    HELP: str
    """What it does, in one line."""
    EXAMPLES: tuple[str, ...]
    """Arguments of typical calls, without the verb."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the arguments of the verb."""

    def run(self, args: argparse.Namespace) -> int:
        """Runs the verb and returns the exit code."""


def verb_of(name: str) -> Verb:
    """Imports the module of a verb."""
    return cast('Verb', importlib.import_module(f'rlframe.entry.{name.replace("-", "_")}'))


def make_parser(name: str, verb: Verb) -> argparse.ArgumentParser:
    """Returns the parser of one verb."""
    examples = '\n'.join(f'  rlframe {name} {example}'.rstrip() for example in verb.EXAMPLES)
    parser = argparse.ArgumentParser(
        prog=f'rlframe {name}',
        description=f'{verb.HELP[0].upper()}{verb.HELP[1:]}.',
        epilog=f'examples:\n{examples}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new option would change what a short form means
    )
    verb.add_arguments(parser)
    parser.add_argument('--debug', action='store_true', help='show the traceback of an error')
    parser.set_defaults(verb=name)
    return parser


def overview() -> str:
    """Returns all verbs by group, for the help of the whole command line."""
    width = max(map(len, VERBS))
    lines = []
    for heading, verbs in GROUPS.items():
        lines += [f'{heading}:', *(f'  {verb:{width}}  {text}' for verb, text in verbs.items()), '']
    return '\n'.join(lines)
