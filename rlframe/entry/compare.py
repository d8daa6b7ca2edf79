"""``rlframe compare``: compares runs by score, env steps and time."""

from __future__ import annotations

import argparse
import json

from rlframe.entry.arguments import add_json

HELP = 'compare runs: options, scores with intervals, steps to the goal'
EXAMPLES = (
    'cartpole_dqn_seed* cartpole_ppo_seed*',
    'runs --out comparison.png',
    'run_a run_b --json',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument(
        'runs',
        nargs='+',
        metavar='RUN',
        help='run folder, or a folder that contains runs; those that differ only in the seed are one group',
    )
    parser.add_argument(
        '--out', metavar='FILE', help='the picture: a .png or .svg file (default: compare.png)'
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.app.comparison import as_data, as_text
    from rlframe.app.figure import compare
    from rlframe.pipeline.saying import say

    comparison, picture = compare(args.runs, args.out, needs_picture=args.out is not None)
    if args.json:
        say(json.dumps(as_data(comparison) | {'picture': picture and str(picture)}))
    else:
        say(as_text(comparison) + (f'\n\npicture: {picture}' if picture else ''))
    return 0
