"""``rlframe train``: trains as a config says, or in an env with settings that suit its spaces."""

from __future__ import annotations

import argparse

from rlframe.entry.arguments import add_config, add_overrides, add_trust, count

HELP = 'train a policy in an env, or by a config (the default verb)'
EXAMPLES = (
    '--env CartPole-v1 --policy ppo',
    '--env CartPole-v1 --policy dqn --seeds 0-4 --jobs 2',
    '-c cartpole_dqn --seed 1 policy.learn.batch_size=128 env_manager.type=gym_vector',
    '--resume cartpole_dqn_seed0 --train-iter 1e4',
)
MODES = ('serial', 'parallel', 'coordinator', 'learner', 'collector')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the verb."""
    parser.add_argument(
        '--env',
        metavar='ID',
        help='env to train in without a config file, with settings that suit its spaces: a Gymnasium id, MODULE:ID or'
        ' MODULE:CLASS. The run ends at the reward threshold of the env, if it has one, or after --env-step (default:'
        ' 1,000,000 on-policy, 200,000 off-policy)',
    )
    parser.add_argument(
        '--policy',
        metavar='NAME',
        help='with --env: the policy (default: one that suits the actions of the env)',
    )
    add_config(parser)
    parser.add_argument(
        '--resume',
        metavar='DIR',
        help='resume from this run folder or checkpoint; "auto": from the newest run of the config, if any',
    )
    parser.add_argument(
        '-s', '--seed', type=int, help="seed of the experiment (default: the config's, else 0)"
    )
    parser.add_argument(
        '--seeds', metavar='SEEDS', help='one run for each of these seeds, such as 0-4 or 0,3,7, in processes'
    )
    parser.add_argument(
        '--jobs',
        type=count,
        metavar='N',
        help='with --seeds: runs at a time (default: as many as the cores allow)',
    )
    parser.add_argument(
        '-m',
        '--mode',
        choices=MODES,
        help='serial (the default): all in this process; parallel: a coordinator here, which starts a learner and collectors;'
        ' coordinator, learner, collector: one role, for runs on several machines',
    )
    parser.add_argument(
        '--join',
        metavar='ADDRESS',
        help='with -m learner or collector: address of the coordinator, which it prints when it starts',
    )
    parser.add_argument(
        '--name',
        metavar='NAME',
        help='with -m learner or collector: name of the worker, by which the run recognises it when it joins again',
    )
    parser.add_argument('--exp-name', metavar='NAME', help='name of the run folder, which must not exist')
    parser.add_argument('--env-step', type=count, metavar='N', help='budget in env steps')
    parser.add_argument('--train-iter', type=count, metavar='N', help='budget in train iterations')
    add_trust(parser)
    add_overrides(parser, 'file')


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuses flags that do not go together."""
    if args.config is None and args.env is None and args.resume in (None, 'auto'):
        parser.error('one of the arguments --env and -c/--config is required')
    if args.env is not None and (args.config is not None or args.resume not in (None, 'auto')):
        other = '--resume DIR' if args.config is None else '-c'
        parser.error(f'--env starts without a config, and {other} names one; leave out one of them')
    if args.policy is not None and args.env is None:
        parser.error('--policy goes with --env; a config names its policy itself (policy.type=...)')
    _check_seeds(parser, args)
    is_worker = args.mode in ('learner', 'collector')
    if is_worker and args.resume is not None:
        parser.error(f'-m {args.mode} has nothing to resume: its coordinator gives it the state of the run')
    for flag, value in (('--join', args.join), ('--name', args.name)):
        if value is not None and not is_worker:
            parser.error(f'{flag} is for -m learner and -m collector')
    if args.exp_name is not None and args.resume not in (None, 'auto'):
        parser.error('--resume DIR continues in its own run folder; leave out --exp-name')


def _check_seeds(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.seeds is None:
        if args.jobs is not None:
            parser.error('--jobs goes with --seeds')
        return
    if args.resume not in (None, 'auto'):
        parser.error(
            '--resume DIR and --seeds do not go together; --resume auto continues the run of each seed'
        )
    for flag, value in (('--seed', args.seed), ('--mode', args.mode)):
        if value not in (None, 'serial'):
            parser.error(f'{flag} and --seeds do not go together')


def run(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    from rlframe.run.exit_guard import guarded, told

    with told(), guarded():  # a module that is imported from here on may keep os._exit
        from rlframe.entry.train import train

        return train(args)
