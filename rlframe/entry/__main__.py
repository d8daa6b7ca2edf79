"""Reads the command line and hands it to a verb. Nothing heavy is imported before the verb is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rlframe import __version__
from rlframe.errors import RLFrameError

VERBS = ('train', 'eval', 'list')
COMPONENTS = (
    'env',
    'env_manager',
    'policy',
    'model',
    'collector',
    'evaluator',
    'learner',
    'learner_hook',
    'replay_buffer',
)


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument('--debug', action='store_true', help='show the traceback of an error')
    parser = argparse.ArgumentParser(
        prog='rlframe',
        description='Reinforcement learning from components that a config file puts together.',
        epilog='Without a verb: train. Example: python -m rlframe.entry -c configs/cartpole_dqn.py',
    )
    parser.add_argument('--version', action='version', version=f'rlframe {__version__}')
    verbs = parser.add_subparsers(dest='verb', metavar='{train,eval,list}', required=True)
    _add_train(verbs, common)
    _add_eval(verbs, common)
    listing = verbs.add_parser(
        'list', parents=[common], help='show the registered components, or the options of one'
    )
    listing.add_argument('kind', nargs='?', choices=COMPONENTS, help='show this kind only')
    listing.add_argument('name', nargs='?', help='show the options of this component')
    return parser


def _count(text: str) -> int:
    """Reads ``100000`` or ``1e5``."""
    return int(float(text))


def _add_train(verbs: argparse._SubParsersAction, common: argparse.ArgumentParser) -> None:
    train = verbs.add_parser(
        'train',
        parents=[common],
        help='train as a config says (the default verb)',
        epilog='Overrides come last: policy.learn.batch_size=128 env_manager.type=gym_vector',
    )
    train.add_argument(
        '-c', '--config', required=True, metavar='FILE', help='config file: .py, .json or .yaml'
    )
    train.add_argument(
        '-s', '--seed', type=int, help="seed of the experiment (default: the config's, else 0)"
    )
    train.add_argument('--exp-name', metavar='NAME', help='name of the run folder, which must not exist')
    train.add_argument('--env-step', type=_count, metavar='N', help='budget in env steps')
    train.add_argument('--train-iter', type=_count, metavar='N', help='budget in train iterations')
    train.add_argument(
        'overrides', nargs='*', metavar='KEY=VALUE', help='options that replace those of the file'
    )


def _add_eval(verbs: argparse._SubParsersAction, common: argparse.ArgumentParser) -> None:
    evaluate = verbs.add_parser(
        'eval', parents=[common], help='score a checkpoint on episodes that training never saw'
    )
    evaluate.add_argument('checkpoint', help='a run folder (its best checkpoint), or a checkpoint')
    evaluate.add_argument(
        '-n', '--episodes', type=int, default=100, metavar='N', help='episodes to play (default: 100)'
    )
    evaluate.add_argument('-s', '--seed', type=int, default=0, help='seed of the episodes (default: 0)')
    evaluate.add_argument(
        '--video', metavar='DIR', help='film the first episode into this folder (needs rlframe[video])'
    )
    evaluate.add_argument('--json', action='store_true', help='print the result as one line of JSON')
    evaluate.add_argument(
        'overrides', nargs='*', metavar='KEY=VALUE', help='options that replace those of the run'
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line.

    Returns:
        0 when done, 1 for a failure while running, 2 for bad input, 130 or 143 when stopped by Ctrl-C or SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0] not in VERBS and words[0] not in ('-h', '--help', '--version')):
        words.insert(0, 'train')
    args = make_parser().parse_args(words)
    try:
        if args.verb == 'train':
            from rlframe.entry.train import train

            return train(args)
        if args.verb == 'eval':
            from rlframe.entry.evaluate import evaluate

            return evaluate(args)
        from rlframe.entry.listing import show

        return show(args)
    except RLFrameError as error:
        if args.debug:
            raise
        sys.stderr.write(f'rlframe: {type(error).__name__}: {error}\n')
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
