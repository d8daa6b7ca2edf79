"""``rlframe plot``: draws the curves of runs."""

from __future__ import annotations

import argparse

HELP = 'draw the curves of one or many runs'
EXAMPLES = (
    'cartpole_dqn_seed0',
    'cartpole_dqn_seed* cartpole_ppo_seed* --out cartpole.png',
    'runs --metric eval/mean_reward --metric train/total_loss',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument('runs', nargs='+', metavar='RUN', help='run folder, or a folder that contains runs')
    parser.add_argument(
        '--metric',
        action='append',
        default=[],
        metavar='TAG',
        help='what to draw, a panel for each (default: eval/mean_reward)',
    )
    parser.add_argument(
        '--out',
        metavar='FILE',
        help='a .png or .svg file (default: both, in the folder of a single run, else in the current folder)',
    )
    parser.add_argument('--title', help='title of the picture (default: the env)')
    parser.add_argument(
        '--smooth', type=int, default=1, metavar='N', help='draw means of N values (default: 1)'
    )


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.app.figure import plot
    from rlframe.pipeline.saying import say

    files = plot(args.runs, args.metric, args.out, args.title, args.smooth)
    say('\n'.join(map(str, files)))
    return 0
