"""``rlframe check-env``: checks an env, and reports each mistake with its line."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_json, add_overrides

HELP = 'check an env: its mistakes, its speed, and the policies that fit'
EXAMPLES = (
    'CartPole-v1',
    'my_env:MyEnv',
    "my_env:MyEnv --wrappers FlattenObservation 'env.kwargs.size=8'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument('env', metavar='ID', help='Gymnasium id, MODULE:ID or MODULE:CLASS')
    parser.add_argument(
        '--wrappers',
        nargs='+',
        default=[],
        metavar='WRAPPER',
        help='wrappers, innermost first: a name of gymnasium.wrappers, or MODULE:CLASS',
    )
    parser.add_argument(
        '--steps', type=int, default=300, metavar='N', help='random env steps to check (default: 300)'
    )
    parser.add_argument('-s', '--seed', type=int, default=0, help='seed of the episodes (default: 0)')
    parser.add_argument(
        '--timeout',
        type=float,
        default=30.0,
        metavar='SECONDS',
        help='longest time of one call of the env (default: 30)',
    )
    add_json(parser)
    add_overrides(parser, 'section env')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses numbers that mean nothing."""
    if args.steps < 1 or args.timeout <= 0 or not 0 <= args.seed < 2**32:
        parser.error('--steps and --timeout must be above 0, --seed in [0, 4294967296)')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code: 1 if the env has errors."""
    from rlframe.app.check_env import check_env, text_of
    from rlframe.app.training import env_options
    from rlframe.pipeline.saying import say_result

    section = {'env_id': args.env, **env_options(args.overrides)}
    if args.wrappers:
        section['wrappers'] = [*args.wrappers, *section.get('wrappers', ())]
    report = check_env(section, args.steps, args.seed, args.timeout)
    say_result(report, text_of, args.json)
    return 0 if report['good'] else 1
