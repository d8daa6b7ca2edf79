"""``rlframe eval``: scores a checkpoint."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_checkpoint, add_episodes, add_json, add_overrides, add_trust

HELP = 'score a checkpoint on episodes that training never saw'
EXAMPLES = (
    'cartpole_dqn_seed0',
    'cartpole_dqn_seed0 --episodes 10 --json',
    'cartpole_dqn_seed0 --video films',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    add_checkpoint(parser)
    add_episodes(parser, default=100)
    parser.add_argument(
        '--video',
        metavar='DIR',
        help='write films of the worst, median and best episode to this folder; every step is drawn, which takes time',
    )
    add_trust(parser)
    add_json(parser)
    add_overrides(parser, 'run')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.entry.evaluate import evaluate

    return evaluate(args)
