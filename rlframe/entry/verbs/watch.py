"""``rlframe watch``: shows a run in a browser while it goes on."""

from __future__ import annotations

import argparse
import sys

HELP = 'show the report on a run in a browser, live'
EXAMPLES = ('cartpole_dqn_seed0', 'cartpole_dqn_seed0 --port 8000')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument(
        'run_folder', metavar='RUN', help='run folder; if it does not exist yet, the page waits for it'
    )
    parser.add_argument(
        '--port', type=int, default=0, metavar='N', help='port on 127.0.0.1 (default: a free one)'
    )


def run(args: argparse.Namespace) -> int:
    """Runs the verb until Ctrl-C and returns the exit code, 0."""
    from rlframe.analysis.live import watch

    watch(args.run_folder, args.port, sys.stdout)
    return 0
