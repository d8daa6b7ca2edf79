"""Reads the command line and hands it to a verb. Nothing heavy is imported before the verb is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rlframe._version import __version__
from rlframe.entry.tune_options import add_tune, check_tune
from rlframe.entry.verbs import Verbs, count
from rlframe.errors import RLFrameError
from rlframe.registry import nearest

VERBS = ('train', 'tune', 'eval', 'export', 'list')
MODES = ('serial', 'parallel', 'coordinator', 'learner', 'collector')
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
    'replay_buffer',
    'commander',
    'parallel_collector',
    'comm_collector',
    'comm_learner',
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
    verbs = parser.add_subparsers(dest='verb', metavar='{train,tune,eval,export,list}', required=True)
    _add_train(verbs, common)
    add_tune(verbs, common)
    _add_eval(verbs, common)
    _add_export(verbs, common)
    listing = verbs.add_parser(
        'list', parents=[common], help='show the registered components, or the options of one'
    )
    listing.add_argument('kind', nargs='?', choices=COMPONENTS, help='show this kind only')
    listing.add_argument('name', nargs='?', help='show the options of this component')
    return parser


def _add_train(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    train = verbs.add_parser(
        'train',
        parents=[common],
        help='train as a config says (the default verb)',
        epilog='Example: -c configs/cartpole_dqn.py --seed 1 policy.learn.batch_size=128 env_manager.type=gym_vector',
    )
    train.add_argument('-c', '--config', metavar='FILE', help='config file: .py, .json or .yaml')
    train.add_argument(
        '--resume',
        metavar='DIR',
        help='resume from this run folder or checkpoint; "auto": from the newest run of the config, if any',
    )
    train.add_argument(
        '-s', '--seed', type=int, help="seed of the experiment (default: the config's, else 0)"
    )
    train.add_argument(
        '-m',
        '--mode',
        choices=MODES,
        help='serial (the default): all in this process; parallel: a coordinator here, which starts a learner and collectors;'
        ' coordinator, learner, collector: one role, for runs on several machines',
    )
    train.add_argument(
        '--join',
        metavar='ADDRESS',
        help='with -m learner or collector: address of the coordinator, which it prints when it starts',
    )
    train.add_argument(
        '--name',
        metavar='NAME',
        help='with -m learner or collector: name of the worker, by which the run recognises it when it joins again',
    )
    train.add_argument('--exp-name', metavar='NAME', help='name of the run folder, which must not exist')
    train.add_argument('--env-step', type=count, metavar='N', help='budget in env steps')
    train.add_argument('--train-iter', type=count, metavar='N', help='budget in train iterations')
    train.set_defaults(usage=train)
    _add_trust(train)
    train.add_argument(
        'overrides', nargs='*', metavar='KEY=VALUE', help='options that replace those of the file'
    )


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--trust',
        '--allow-import',
        dest='trust',
        action='store_true',
        help='let the config of a foreign run import code, open files and start programs, and print each such value; your own'
        ' runs do not need it',
    )


def _add_eval(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    evaluate = verbs.add_parser(
        'eval', parents=[common], help='score a checkpoint on episodes that training never saw'
    )
    evaluate.add_argument('checkpoint', help='a run folder (its best checkpoint), or a checkpoint')
    evaluate.add_argument(
        '-n', '--episodes', type=int, default=100, metavar='N', help='episodes to play (default: 100)'
    )
    evaluate.add_argument('-s', '--seed', type=int, default=0, help='seed of the episodes (default: 0)')
    evaluate.add_argument(
        '--video',
        metavar='DIR',
        help='record a video of the first episode in this folder (needs rlframe[video])',
    )
    _add_trust(evaluate)
    evaluate.add_argument('--json', action='store_true', help='print the result as one line of JSON')
    evaluate.add_argument(
        'overrides', nargs='*', metavar='KEY=VALUE', help='options that replace those of the run'
    )


def _add_export(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    export = verbs.add_parser(
        'export',
        parents=[common],
        help='write a trained policy for use elsewhere, without its config and env',
    )
    export.add_argument(
        'checkpoint', metavar='RUN', help='a run folder (its best checkpoint), or a checkpoint'
    )
    export.add_argument(
        '--format',
        nargs='+',
        default=['artifact'],
        metavar='FORMAT',
        help='artifact (the default): a folder for rlframe.load; state_dict: weights alone; torch_export, onnx: a function'
        ' from observations to actions that needs no rlframe',
    )
    export.add_argument(
        '--out', metavar='DIR', help='the folder to write to (default: the folder export of the run)'
    )
    _add_trust(export)
    export.add_argument(
        'overrides', nargs='*', metavar='KEY=VALUE', help='options that replace those of the run'
    )


def parse(words: list[str]) -> argparse.Namespace:
    """Reads a command line; overrides may stand anywhere behind the verb."""
    parser = make_parser()
    if not words or (words[0] not in VERBS and words[0] not in ('-h', '--help', '--version')):
        if words and not words[0].startswith('-') and '=' not in words[0]:
            hint = nearest(words[0], VERBS) or ' A config file is given by -c FILE.'
            parser.error(f'no verb {words[0]!r}.{hint} Verbs: {", ".join(VERBS)}')
        words = ['train', *words]
    args, rest = parser.parse_known_args(words)
    stray = [word for word in rest if word.startswith('-') or '=' not in word]
    if stray or (rest and 'overrides' not in args):
        parser.error(f'unrecognized arguments: {" ".join(stray or rest)}')
    if rest:
        args.overrides = [*args.overrides, *rest]
    if args.verb == 'tune':
        check_tune(args)
    if args.verb == 'train':
        _check_train(args)
    return args


def _check_train(args: argparse.Namespace) -> None:
    """Refuses flags that do not go together."""
    if args.config is None and args.resume in (None, 'auto'):
        args.usage.error('the following arguments are required: -c/--config')
    is_worker = args.mode in ('learner', 'collector')
    if is_worker and args.resume is not None:
        args.usage.error(
            f'-m {args.mode} has nothing to resume: its coordinator gives it the state of the run'
        )
    for flag, value in (('--join', args.join), ('--name', args.name)):
        if value is not None and not is_worker:
            args.usage.error(f'{flag} is for -m learner and -m collector')
    if args.exp_name is not None and args.resume not in (None, 'auto'):
        args.usage.error('--resume DIR continues in its own run folder; leave out --exp-name')


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line.

    Returns:
        0 when done, 1 for a failure while running, 2 for bad input, 130 or 143 when stopped by Ctrl-C or SIGTERM.
    """
    args = parse(list(sys.argv[1:] if argv is None else argv))
    from rlframe.entry.import_path import set_import_path

    set_import_path(args)
    try:
        if getattr(args, 'trust', False):
            from rlframe.entry.trusted import tell_what_is_trusted

            tell_what_is_trusted()
        if args.verb == 'train':
            from rlframe.run.exit_guard import guarded, told

            with told(), guarded():  # a module that is imported from here on may keep os._exit
                from rlframe.entry.train import train

                return train(args)
        if args.verb == 'tune':
            from rlframe.entry.tune import tune

            return tune(args)
        if args.verb == 'eval':
            from rlframe.entry.evaluate import evaluate

            return evaluate(args)
        if args.verb == 'export':
            from rlframe.entry.export import export

            return export(args)
        from rlframe.entry.listing import show

        return show(args)
    except RLFrameError as error:
        if args.debug:
            raise
        notes = ''.join(f'\n  {note}' for note in getattr(error, '__notes__', ()))
        sys.stderr.write(f'rlframe: {type(error).__name__}: {error}{notes}\n')
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
