"""``rlframe new``: begins a file in the current folder."""

from __future__ import annotations

import argparse

HELP = 'begin your own config, policy, model, hook, env or other part'
EXAMPLES = (
    'config my_config --env CartPole-v1 --policy ppo',
    'policy my_policy',
    'hook my_hook',
)
KINDS = ('config', 'policy', 'model', 'hook', 'buffer', 'env', 'backend', 'logger')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument('kind', metavar='KIND', choices=KINDS, help=f'one of {", ".join(KINDS)}')
    parser.add_argument(
        'name', metavar='NAME', help='name of the file without .py, and of the component in configs'
    )
    parser.add_argument(
        '--env',
        metavar='ID',
        help='with config: the env, whose spaces and speed decide the settings: a Gymnasium id, MODULE:ID or MODULE:CLASS',
    )
    parser.add_argument('--policy', metavar='NAME', help='with config: the policy (default: one that fits)')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses arguments that do not go together."""
    if args.kind == 'config' and args.env is None:
        parser.error('which env? Give --env, for example --env CartPole-v1')
    if args.kind != 'config' and (args.env or args.policy):
        parser.error('--env and --policy go with: rlframe new config')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from pathlib import Path

    from rlframe.app.new import new_config, new_file
    from rlframe.pipeline.saying import say

    if args.kind == 'config':
        file, commands = new_config(args.name, Path.cwd(), args.env, args.policy)
    else:
        file, commands = new_file(args.kind, args.name, Path.cwd())
    lines = [f'wrote {file.name}; it runs as it is:', *(f'  {command}' for command in commands)]
    say('\n'.join(lines))
    return 0
