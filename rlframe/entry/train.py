"""``rlframe train``: trains as a config says, shows the progress, and prints where the results are."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.config import compile_config
from rlframe.config.reader import read_config
from rlframe.config.sections import ExperimentConfig
from rlframe.entry.stop import StopSignal
from rlframe.entry.terminal.lines import last_lines, resume_line
from rlframe.entry.terminal.saying import say, short_path
from rlframe.errors import ConfigWarning

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair, Resumption, Start
    from rlframe.pipeline.serial import SerialPipeline

AUTO = 'auto'
"""Value of ``--resume`` for the newest run of the config."""


def train(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    given = dict(seed=args.seed, max_env_step=args.env_step, max_train_iter=args.train_iter)
    is_parallel = args.mode not in (None, 'serial')
    pair = config_of(args)
    if args.seeds is not None:
        assert pair is not None  # the parser requires it
        from rlframe.entry.seeds import train_all

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
    for warning in caught:
        sys.stderr.write(f'rlframe: warning: {warning.message}\n')
    if found is not None:
        return go_on(found, args)
    if not is_parallel:
        return run(cfg, args.exp_name, again=again)
    from rlframe.entry import parallel

    if args.mode in parallel.WORKERS:
        return parallel.work(cfg, args)
    return parallel.run(cfg, args, args.exp_name, again=again)


def config_of(args: argparse.Namespace) -> Pair | None:
    """Returns the config that the command line names, or one for the env that it names; None if it names neither."""
    if args.env is None:
        return read_config(args.config) if args.config else None
    from rlframe.experiment.starting import env_options, starting_config

    return starting_config(args.env, args.policy, env_options(args.overrides))


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
    for note in found.notes:
        sys.stderr.write(f'rlframe: warning: {note}\n')
    if args is not None and found.cfg.get('parallel') is not None and args.mode != 'serial':
        from rlframe.entry import parallel

        return parallel.run(found.cfg, args, resumption=found)
    return run(found.cfg, resumption=found)


def run(
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
    from rlframe.entry.terminal.display import Display
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.run.run_folder import named_folder

    start = perf_counter()
    folder: Path | Callable[[], Path] | None = resumption.folder if resumption else again
    if folder is None and folder_name:
        folder = partial(named_folder, folder_name)
    saved = resumption.saved if resumption else None
    with StopSignal() as stop, SerialPipeline(cfg, folder, resume=saved) as pipeline:
        say(_launch_line(pipeline))
        if resumption is not None:
            say(resume_line(pipeline, resumption))
        if not pipeline.complete:
            with Display(pipeline) as display:

                def after_step(_: SerialPipeline) -> bool:
                    display.show()
                    return stop.received is not None

                def interrupted() -> bool:  # asked during evaluations
                    display.show()
                    return stop.received is not None

                pipeline.run(after_step, interrupted)
            if stop.received is not None:
                pipeline.checkpoints.save_latest()
        say(last_lines(pipeline, perf_counter() - start, stop.received is not None))
        return stop.exit_code


def _launch_line(pipeline: SerialPipeline) -> str:
    """Prints the expected resources of the run."""
    from rlframe.checkpoint import describe_cost
    from rlframe.pipeline import build
    from rlframe.pipeline.ending import BUDGETS, NO_BUDGET

    cfg = pipeline.cfg
    size = build.buffer_nbytes(cfg, pipeline.factory.spec)
    memory = f'replay buffer {size / 2**20:.1f} MiB' if size else 'no replay buffer'
    saved = describe_cost(size, cfg.checkpoint)
    device = pipeline.policy.get_attribute('device')
    verb = 'averages' if pipeline.evaluator.scores_returns else 'reaches'
    goal = pipeline.evaluator.goal
    until = f'until an evaluation {verb} {goal}' if goal else 'until a budget is spent'
    if pipeline.past_goal:
        until = f'until a budget is spent (the goal of {goal} was reached)'
    budgets = [f'{cfg[key]:,} {unit}' for key, (_, unit, _) in BUDGETS.items() if cfg[key] < NO_BUDGET]
    until += f', at most {" and ".join(budgets)}' if budgets else ''
    return (
        f'{cfg.policy.type} on {pipeline.collection.summary(cfg)}; {memory}; {saved}; device {device}, {cfg.num_threads} torch thread(s);'
        f' seed {cfg.seed}; {until}'
    )
