"""``rlframe train``: trains with a config, shows the progress, and prints the folder of the results."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.config import compile_config
from rlframe.config.reader import read_config
from rlframe.config.schema import ExperimentConfig
from rlframe.entry.arguments import add_config, add_overrides, add_trust, count
from rlframe.errors import ConfigWarning
from rlframe.pipeline.saying import say, say_warnings, short_path
from rlframe.run.exit_guard import StopSignal

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair, Resumption, Start

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
    from rlframe.run.exit_guard import told

    with told():
        return train(args)


AUTO = 'auto'
"""Value of ``--resume`` for the newest run of the config."""


def train(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    given = dict(seed=args.seed, max_env_step=args.env_step, max_train_iter=args.train_iter)
    is_parallel = args.mode not in (None, 'serial')
    pair = config_of(args)
    if args.seeds is not None:
        assert pair is not None  # the parser requires it

        return train_all(pair, args)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        if args.resume is None or args.resume == AUTO:
            assert pair is not None  # the parser requires it
            named: dict[str, Any] = dict(
                overrides=args.overrides, exp_name=args.exp_name, parallel=is_parallel
            )
            cfg = compile_config(pair[0], pair[1], **named, **given)
            found = _newest_run(cfg, pair, args, given) if args.resume == AUTO else None
            again = _again(cfg, args) if args.resume == AUTO and found is None else None
        else:
            found = _resume(args.resume, pair, args, given)
        config.warn_of_own_parts(cfg if found is None else found.cfg)
    say_warnings(warning.message for warning in caught)
    if found is not None:
        return go_on(found, args)
    if not is_parallel:
        return _run(cfg, args.exp_name, again=again)
    from rlframe.entry import parallel

    if args.mode in parallel.WORKERS:
        return parallel.work(cfg, args)
    return parallel.run(cfg, args, args.exp_name, again=again)


def config_of(args: argparse.Namespace) -> Pair | None:
    """Returns the config that the command line names, or one for the env that it names; None if it names neither."""
    if args.env is None:
        return read_config(args.config) if args.config else None
    from rlframe.app.training import env_options, starting_config

    given = config.parse_overrides(args.overrides)
    policy, budget = args.policy or given.get('policy.type'), args.env_step or given.get('max_env_step')
    return starting_config(args.env, policy, env_options(args.overrides), budget)


def _resume(
    path: str | Start, pair: Pair | None, args: argparse.Namespace, given: Mapping[str, Any]
) -> Resumption:
    from rlframe.pipeline.resume import resume

    return resume(path, pair, overrides=args.overrides, trust=args.trust, **given)


def _newest_run(
    cfg: ExperimentConfig, pair: Pair, args: argparse.Namespace, given: Mapping[str, Any]
) -> Resumption | None:
    """Finds the newest run of this config to resume; None if there is none, so that a new one begins."""
    from rlframe.pipeline.resume import newest_run

    start = newest_run(cfg, args.exp_name)
    return None if start is None else _resume(start, pair, args, given)


def _again(cfg: ExperimentConfig, args: argparse.Namespace) -> Path | None:
    """Returns the folder of a run of this config that ended before its first checkpoint, None if there is none."""
    from rlframe.pipeline.resume import unbegun_run

    folder = unbegun_run(cfg, args.exp_name)
    if folder is None:
        sys.stderr.write('rlframe: found no run of this config to resume; starting a new one\n')
    else:
        sys.stderr.write(
            f'rlframe: {short_path(folder)} ended before its first checkpoint; starting again in the same folder\n'
        )
    return folder


def go_on(found: Resumption, args: argparse.Namespace | None = None) -> int:
    """Goes on with a run, in its own mode, and returns the exit code."""
    say_warnings(found.notes)
    if args is not None and found.cfg.get('parallel') is not None and args.mode != 'serial':
        from rlframe.entry import parallel

        return parallel.run(found.cfg, args, resumption=found)
    return _run(found.cfg, resumption=found)


def _run(
    cfg: ExperimentConfig,
    folder_name: str | None = None,
    resumption: Resumption | None = None,
    again: Path | None = None,
) -> int:
    """Trains with a compiled config and returns the exit code.

    Args:
        cfg: The config.
        folder_name: Name of the new run folder, if the user set one.
        resumption: The state and config of a resumed run.
        again: Existing folder of a run that starts again.
    """
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.pipeline.training import run_shown
    from rlframe.run.run_folder import chosen_folder

    since = perf_counter()
    folder = chosen_folder(resumption.folder if resumption else again, folder_name or None)
    saved = resumption.saved if resumption else None
    with StopSignal() as stop, SerialPipeline(cfg, folder, resume=saved) as pipeline:
        run_shown(pipeline, saved, lambda: stop.received is not None, since=since)
        return stop.exit_code


def train_all(pair: Pair, args: argparse.Namespace) -> int:
    """Runs the verb for several seeds and returns the exit code: 1 if a seed failed."""
    from rlframe.app.seeds import parse_seeds, train_seeds
    from rlframe.pipeline.workers_shown import SeedDisplay, last_lines

    seeds, start = parse_seeds(args.seeds), perf_counter()
    named = dict(exp_name=args.exp_name, max_env_step=args.env_step, max_train_iter=args.train_iter)
    with StopSignal() as stop, SeedDisplay() as display, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        runs = train_seeds(
            pair,
            seeds,
            jobs=args.jobs,
            overrides=args.overrides,
            resume=args.resume is not None,
            on_change=display.show,
            should_stop=lambda: stop.received is not None,
            **named,
        )
    say_warnings(warning.message for warning in caught)
    for line in last_lines(runs, perf_counter() - start):
        say(line)
    failed = [run for run in runs if run.state == 'failed']
    for run in failed:
        sys.stderr.write(f'rlframe: seed {run.seed} failed: {run.error}\n')
    return stop.exit_code or (1 if failed else 0)
