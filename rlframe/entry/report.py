"""``rlframe report``: writes a page about a run."""

from __future__ import annotations

import argparse

HELP = 'write one HTML page about a run, which needs no network'
EXAMPLES = ('cartpole_dqn_seed0', 'cartpole_dqn_seed0 --out page.html')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument('run_folder', metavar='RUN', help='run folder')
    parser.add_argument('--out', metavar='FILE', help='the page (default: RUN/report.html)')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.app.page import write_report
    from rlframe.pipeline.saying import say

    say(str(write_report(args.run_folder, args.out)))
    return 0
