"""``rlframe export``: a trained policy as one folder that acts by itself, and in other formats."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_checkpoint, add_overrides, add_trust
from rlframe.export import FORMATS, export_policy
from rlframe.pipeline.saying import say

HELP = 'write a trained policy for use without its config and env'
EXAMPLES = ('cartpole_dqn_seed0', 'cartpole_dqn_seed0 --format artifact onnx --out my_policy')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    add_checkpoint(parser)
    parser.add_argument(
        '--format',
        nargs='+',
        default=['artifact'],
        metavar='FORMAT',
        help='artifact (the default): a folder for rlframe.load; state_dict: weights alone; torch_export, onnx: a function'
        ' from observations to actions that needs no rlframe',
    )
    parser.add_argument(
        '--out', metavar='DIR', help='the folder to write to (default: the folder export of the run)'
    )
    add_trust(parser)
    add_overrides(parser, 'run')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    written = export_policy(
        args.checkpoint, args.format, args.out, trust=args.trust, overrides=args.overrides
    )
    for name, path in written.items():
        say(f'{name}: {path}; use it: {FORMATS[name].usage.format(path=str(path))}')
    return 0
