"""``rlframe check-config``: reports all mistakes of a config, or describes its run."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import CONFIG, add_json, add_overrides

HELP = 'report all mistakes of a config at once, or describe its run'
EXAMPLES = (
    'cartpole_dqn',
    'my_config.py policy.learn.batch_size=256',
    'my_config.py --no-env',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument('config', metavar='FILE', help=CONFIG)
    parser.add_argument(
        '--no-env',
        action='store_true',
        help='check the options only: otherwise one env is created and closed, whose spaces tell whether the policy fits and'
        ' how large networks and replay buffer become',
    )
    add_json(parser)
    add_overrides(parser, 'file')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.app.check_config import check_config, mistakes_of, text_of
    from rlframe.errors import ConfigError
    from rlframe.pipeline.saying import say_result

    try:
        found = check_config(args.config, args.overrides, with_env=not args.no_env)
    except ConfigError as error:
        if not args.json:
            raise
        found = {'valid': False, 'config': args.config, 'mistakes': mistakes_of(error)}
        say_result(found, text_of, args.json)
        return error.exit_code
    found = {'valid': True, 'mistakes': [], **found}
    say_result(found, text_of, args.json)
    return 0
