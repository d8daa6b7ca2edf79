"""``rlframe import-ding``: converts a config of DI-engine to one of rlframe."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_json

HELP = 'convert a config of DI-engine, and list all changes with reasons'
EXAMPLES = ('cartpole_dqn_config.py', 'cartpole_dqn_config.py --out my_config.py')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument(
        'file', metavar='FILE', help='config of DI-engine, a Python file; DI-engine is not needed'
    )
    parser.add_argument('--out', metavar='FILE', help='the file to write (default: NAME_rlframe.py)')
    parser.add_argument(
        '--parallel',
        action='store_true',
        help="translate a config of DI-engine's parallel mode to rlframe's (-m parallel), and not to Ray actors",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.app.import_ding import import_ding, text_of
    from rlframe.pipeline.saying import say_result

    found = import_ding(args.file, args.out, args.parallel)
    say_result(found, text_of, args.json)
    return 0
