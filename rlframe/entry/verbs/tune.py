"""``rlframe tune``: searches over the options of a config. Reading its arguments imports no Ray."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_config, add_overrides, count
from rlframe.tune.names import METRIC, SCHEDULERS, SEARCHES

HELP = 'search over the options of a config with Ray Tune'
EXAMPLES = (
    '-c cartpole_dqn --search "policy.learn.learning_rate=loguniform(1e-4,1e-2)" --num-samples 8'
    ' --scheduler asha --env-step 20000',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    add_config(parser)
    parser.add_argument(
        '--search',
        nargs='+',
        action='extend',
        default=[],
        metavar='KEY=DOMAIN',
        help='an option and what it is drawn from: uniform(a,b), loguniform(a,b), randint(a,b), choice(a,b,...),'
        ' grid(a,b,...)',
    )
    parser.add_argument(
        '-n',
        '--num-samples',
        type=count,
        default=1,
        metavar='N',
        help='number of samples to draw (default: 1)',
    )
    parser.add_argument(
        '--scheduler',
        choices=SCHEDULERS,
        default='none',
        help='which trials end early or copy better ones (default: none)',
    )
    parser.add_argument(
        '--interval',
        type=count,
        metavar='N',
        help='evaluations between two decisions of pbt and pb2, and before the first one of median, and of asha without a'
        ' budget (default: 4)',
    )
    parser.add_argument(
        '--algorithm', choices=SEARCHES, default='random', help='search algorithm (default: random)'
    )
    parser.add_argument('--metric', default=METRIC, help='metric that compares trials (default: %(default)s)')
    parser.add_argument(
        '--mode',
        choices=('max', 'min'),
        default='max',
        help='whether a higher (max) or lower (min) metric is better (default: max)',
    )
    parser.add_argument(
        '--stop',
        nargs='+',
        action='extend',
        default=[],
        metavar='KEY=VALUE',
        help='end a trial when a key of its results reaches a value',
    )
    parser.add_argument('--env-step', type=count, metavar='N', help='budget of each trial in env steps')
    parser.add_argument(
        '--train-iter', type=count, metavar='N', help='budget of each trial in train iterations'
    )
    parser.add_argument(
        '--time-budget', type=float, metavar='SECONDS', help='ends the whole search after this time'
    )
    parser.add_argument(
        '--max-concurrent',
        type=count,
        default=0,
        metavar='N',
        help='trials at a time (default: as many as the CPUs allow)',
    )
    parser.add_argument(
        '--max-failures',
        type=int,
        default=0,
        metavar='N',
        help='how often a failed trial resumes from its last checkpoint (default: 0)',
    )
    parser.add_argument('-s', '--seed', type=int, help='seed of the draws')
    parser.add_argument('--name', help='name of the results folder, which must not exist')
    parser.add_argument(
        '--storage',
        default='.',
        metavar='DIR',
        help='folder in which the results folder is created (default: the current one)',
    )
    parser.add_argument(
        '--resume', metavar='DIR', help='resume the search of this results folder, if you trust it'
    )
    parser.add_argument(
        '--restart-errored',
        action='store_true',
        help='with --resume: restart trials that failed',
    )
    add_overrides(parser, 'file in all trials')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Checks that the options are compatible; ends the process with a usage message if not."""
    if args.resume is None and args.config is None:
        parser.error('the following arguments are required: -c/--config')
    if args.resume is not None:
        kept = ('resume', 'restart_errored', 'debug', 'verb')
        given = [
            name for name in vars(args) if name not in kept and vars(args)[name] != parser.get_default(name)
        ]
        if [name for name in given if vars(args)[name]]:
            parser.error(f'--resume DIR continues the search unchanged; leave out: {", ".join(given)}')
    elif args.restart_errored:
        parser.error('--restart-errored goes with --resume DIR')
    if args.resume is None and not args.search and args.num_samples == 1:
        parser.error(
            "what to search over? Give --search, for example 'policy.learn.learning_rate=loguniform(1e-4,1e-2)'"
        )


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.entry.tune import tune

    return tune(args)
