"""``rlframe list``: shows the registered components."""

from __future__ import annotations

import argparse

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
    from rlframe.entry import listing

    return listing.show_plugins() if args.plugins else listing.show(args)
