"""Command-line arguments that several verbs share."""

from __future__ import annotations

import argparse
import math
from typing import Any

CONFIG = 'config: a .py, .json or .yaml file, or the name of a shipped one, such as cartpole_dqn'
"""Help of an argument that takes a config."""


def count(text: str) -> int:
    """Reads ``100000`` or ``1e5``.

    Raises:
        ArgumentTypeError: If it is no whole number of at least 1.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer() or number < 1:
        raise argparse.ArgumentTypeError(f'{text!r} is not a whole number >= 1, such as 100000 or 1e5')
    return int(number)


def add_config(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Adds ``-c``, for verbs that start from a config."""
    parser.add_argument('-c', '--config', metavar='FILE', help=CONFIG, **more)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Adds ``RUN``, for verbs that use the policy of a checkpoint."""
    parser.add_argument(
        'checkpoint', metavar='RUN', help='a run folder (its best checkpoint), or a checkpoint'
    )


def add_episodes(parser: argparse.ArgumentParser, default: int) -> None:
    """Adds ``--episodes`` and ``--seed``, for verbs that play episodes."""
    parser.add_argument(
        '-n',
        '--episodes',
        type=int,
        default=default,
        metavar='N',
        help='episodes to play (default: %(default)s)',
    )
    parser.add_argument('-s', '--seed', type=int, default=0, help='seed of the episodes (default: 0)')


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds ``--trust``, for verbs that may use the config of somebody else's run."""
    parser.add_argument(
        '--trust',
        action='store_true',
        help='let the config of a foreign run import code, open files and start programs, and print each such value; your own'
        ' runs do not need it',
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``, for verbs whose result a program may read."""
    parser.add_argument('--json', action='store_true', help='print the result as one line of JSON')


def add_overrides(parser: argparse.ArgumentParser, of: str) -> None:
    """Adds ``KEY=VALUE``, options that replace those of a file or of a run."""
    parser.add_argument(
        'overrides', nargs='*', metavar='KEY=VALUE', help=f'options that replace those of the {of}'
    )
