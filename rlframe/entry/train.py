"""``rlframe train``: trains with a config, shows the progress, and prints the folder of the results."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.config import compile_config
from rlframe.config.components import value_at
from rlframe.config.reader import read_config
from rlframe.config.schema import ExperimentConfig
from rlframe.display.text import begin_line, say, say_warnings
from rlframe.entry.arguments import SETS, Args, refuse_twice
from rlframe.errors import ConfigWarning
from rlframe.run.exit_guard import StopSignal, exits_as_errors
from rlframe.run.run_folder import chosen_folder

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair
    from rlframe.run.read_checkpoint import OpenCheckpoint

AUTO = 'auto'
"""Value of ``--resume`` for the newest run of the config."""
HINDSIGHT = 'policy.other.replay_buffer.hindsight'
"""Section that says how goals are replayed."""


def run(args: Args) -> int:
    """Runs the verb and returns the exit code."""
    _take_overrides(args)
    _check(args)
    if (learners := args.learners or _processes()) > 1:
        args.overrides = [*args.overrides, f'policy.learn.num_learners={learners}']
    with exits_as_errors():
        return _train(args) if args.seeds is None else _train_seeds(args)


def _take_overrides(args: Args) -> None:
    """Takes the options behind the paths of ``--data``, such as ``collector.top=0.1``, for what they are."""
    words = args.data or []
    behind = [word for word in words[1:] if '=' in word and not Path(word).exists()]
    args.overrides = [*behind, *args.overrides]
    args.data = [word for word in words if word not in behind] or args.data


def _check(args: Args) -> None:
    """Refuses flags that do not go together."""
    goes_on = args.resume not in (None, AUTO)
    is_worker = args.mode in ('learner', 'collector')
    refused: tuple[tuple[Any, str], ...] = (
        (
            not (args.config or args.env or args.data or goes_on),
            'one of the arguments --env, --data and -c/--config is required',
        ),
        (
            args.data and (args.config or goes_on),
            '--data starts without a config; with one: collector.data=DATA',
        ),
        (args.download and not args.data, '--download goes with --data'),
        (args.env and args.config, '--env starts without a config, and -c names one; leave out one of them'),
        (
            args.env and goes_on,
            '--env starts without a config, and --resume DIR names one; leave out one of them',
        ),
        (
            args.policy and not (args.env or args.data),
            '--policy goes with --env or --data; a config names its policy itself (policy.type=...)',
        ),
        (args.jobs and not args.seeds, '--jobs goes with --seeds'),
        (args.stacked and not args.seeds, '--stacked goes with --seeds'),
        (
            args.seeds and goes_on,
            '--resume DIR and --seeds do not go together; --resume auto continues the run of each seed',
        ),
        (args.seeds and args.seed is not None, '--seed and --seeds do not go together'),
        (args.seeds and args.mode not in (None, 'serial'), '--mode and --seeds do not go together'),
        (args.seeds and _processes() > 1, '--seeds starts a process for each seed; leave out torchrun'),
        (
            is_worker and args.resume,
            f'-m {args.mode} has nothing to resume: its coordinator gives it the state of the run',
        ),
        (args.join and not is_worker, '--join is for -m learner and -m collector'),
        (args.name and not is_worker, '--name is for -m learner and -m collector'),
        (args.exp_name and goes_on, '--resume DIR continues in its own run folder; leave out --exp-name'),
        (args.out and goes_on, '--resume DIR continues in its own run folder; leave out --out'),
        (args.out and args.exp_name, '--out and --exp-name both name the run folder; leave out one of them'),
        (
            args.out and is_worker,
            f'-m {args.mode} has no run folder: its coordinator has one; leave out --out',
        ),
    )
    for is_refused, text in refused:
        if is_refused:
            args.parser.error(text)
    refuse_twice(args, SETS)


def _processes() -> int:
    """Returns the number of processes that torchrun started; 1 without it."""
    return int(os.environ.get('WORLD_SIZE', '1'))


def _train(args: Args) -> int:
    given = dict(seed=args.seed, max_env_step=args.env_step, max_train_iter=args.train_iter)
    is_parallel = args.mode not in (None, 'serial')
    pair = config_of(args)
    start = args.resume
    found = None
    begun = None
    wanted = args.out or args.exp_name
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        # a new run
        if start in (None, AUTO):
            assert pair is not None  # the command line was checked
            named: dict[str, Any] = dict(exp_name=args.exp_name, parallel=is_parallel, **given)
            cfg = compile_config(*pair, overrides=args.overrides, **named)
        if start == AUTO:
            from rlframe.pipeline.resume import newest_run

            start = newest_run(cfg, wanted)
            if start is None or isinstance(start, Path):
                begun = start
                start = None
                sys.stderr.write(f'rlframe: {begin_line(begun)}\n')
        # a resumed one
        if start is not None:
            from rlframe.pipeline.resume import resume

            found = resume(start, pair, overrides=args.overrides, trust=args.trust, **given)
            cfg = found.cfg
        config.warn_of_own_parts(cfg)
    say_warnings(warning.message for warning in caught)
    # train
    if found is not None:
        say_warnings(found.notes)
        is_parallel = cfg.get('parallel') is not None and args.mode != 'serial'
        return _run(cfg, args, is_parallel, found.folder, found.saved)
    if args.mode in ('learner', 'collector'):
        from rlframe.entry.parallel import work

        return work(cfg, args)
    return _run(cfg, args, is_parallel, chosen_folder(begun, wanted))


def config_of(args: Args) -> Pair | None:
    """Returns the config that the command line names, or one for the env that it names; None if it names neither."""
    if getattr(args, 'data', None):
        from rlframe.app.offline import data_config

        return data_config(args.data, args.policy, args.env, args.train_iter, args.trust, args.download)
    if args.env is None:
        return read_config(args.config) if args.config else None
    from rlframe.app.starting import overridden_start

    pair = overridden_start(args.env, args.policy, args.overrides, args.env_step)
    if value_at(pair[0], HINDSIGHT, None):
        name = pair[1]['policy']['type']
        sys.stderr.write(f'rlframe: this env rewards goals: {name} with hindsight replay ({HINDSIGHT})\n')
    return pair


def _run(
    cfg: ExperimentConfig,
    args: Args,
    is_parallel: bool,
    folder: Path | Callable[[], Path] | None,
    saved: OpenCheckpoint | None = None,
) -> int:
    """Trains with a compiled config and returns the exit code; in parallel mode, with the coordinator in this process."""
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.pipeline.training import run_shown

    since = perf_counter()
    if _processes() > 1:
        from rlframe.pipeline.learner_aggregator import follow_torchrun

        if follow_torchrun(cfg):
            return 0
    if not is_parallel:
        with StopSignal() as stop, SerialPipeline(cfg, folder, resume=saved) as serial:
            run_shown(serial, saved, lambda: stop.received is not None, since=since)
            return stop.exit_code
    from rlframe.entry.parallel import coordinated, workers_text

    with StopSignal() as stop, coordinated(cfg, args, folder, saved) as pipeline:
        more = workers_text(pipeline, args)
        run_shown(pipeline, saved, lambda: stop.received is not None, since=since, more=more)
        return stop.exit_code


def _train_seeds(args: Args) -> int:
    """Trains several seeds and returns the exit code: 1 if a seed failed."""
    from rlframe.app.seeds import parse_seeds, train_seeds
    from rlframe.display.workers import SeedDisplay, last_lines

    pair = config_of(args)
    seeds = parse_seeds(args.seeds)
    start = perf_counter()
    named = dict(exp_name=args.exp_name, max_env_step=args.env_step, max_train_iter=args.train_iter)
    with StopSignal() as stop, SeedDisplay() as display, warnings.catch_warnings():
        warnings.simplefilter('default', ConfigWarning)  # each text once
        warnings.showwarning = lambda message, *_: say_warnings([message])
        runs = train_seeds(
            pair,
            seeds,
            jobs=args.jobs,
            stacked=args.stacked,
            overrides=args.overrides,
            resume=args.resume is not None,
            home=args.out,
            on_change=display.show,
            should_stop=lambda: stop.received is not None,
            **named,
        )
    for line in last_lines(runs, perf_counter() - start):
        say(line)
    failed = [run for run in runs if run.state == 'failed']
    for run in failed:
        sys.stderr.write(f'rlframe: seed {run.seed} failed: {run.error}\n')
    return stop.exit_code or (1 if failed else 0)
