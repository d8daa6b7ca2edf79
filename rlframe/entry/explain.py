"""``rlframe explain``: describes an option or a component."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_config, add_json, add_overrides

HELP = 'describe an option: values, default, unit, value in a config'
EXAMPLES = (
    'policy.learn.batch_size',
    'gamma',
    'n_sample -c cartpole_dqn',
    'replay_buffer.advanced',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument(
        'key',
        metavar='KEY',
        help="dotted key of an option or a section, the end of one, another framework's name for one, or a component as"
        ' KIND.NAME',
    )
    add_config(parser)
    add_json(parser)
    add_overrides(parser, 'file')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses overrides of no config."""
    if args.overrides and args.config is None:
        parser.error('KEY=VALUE changes a config; name one with -c')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.app.explain import explain, text_of
    from rlframe.pipeline.saying import say_result

    found = explain(args.key, args.config, args.overrides)
    say_result(found, text_of, args.json)
    return 0
