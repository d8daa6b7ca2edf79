"""``rlframe train``: trains as a config says, shows the progress, and prints where the results are."""

from __future__ import annotations

import argparse
import os
import shlex
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
from rlframe.entry.saying import say, short_path
from rlframe.entry.stop import StopSignal
from rlframe.errors import ConfigWarning
from rlframe.pipeline.ending import nothing_left
from rlframe.safety.trust_key import has_key

STDLIB = str(Path(os.__file__).parent)
"""First entry of ``sys.path`` that every process has; entries before it belong to this process or shell."""

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair, Resumption, Start
    from rlframe.pipeline.serial import SerialPipeline

AUTO = 'auto'
"""Value of ``--resume`` for the newest run of the config."""


def train(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    given = dict(seed=args.seed, max_env_step=args.env_step, max_train_iter=args.train_iter)
    pair = read_config(args.config) if args.config else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        if args.resume is None or args.resume == AUTO:
            assert pair is not None  # the parser requires it
            cfg = compile_config(*pair, overrides=args.overrides, exp_name=args.exp_name, **given)
            found = _newest_run(cfg, pair, args, given) if args.resume == AUTO else None
            again = _again(cfg, args) if args.resume == AUTO and found is None else None
        else:
            found = _resume(args.resume, pair, args, given)
        config.warn_of_own_parts(cfg if found is None else found.cfg)
    for warning in caught:
        sys.stderr.write(f'rlframe: warning: {warning.message}\n')
    return run(cfg, args.exp_name, again=again) if found is None else go_on(found)


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


def go_on(found: Resumption) -> int:
    """Goes on with a run and returns the exit code."""
    for note in found.notes:
        sys.stderr.write(f'rlframe: warning: {note}\n')
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
    from rlframe.entry.display import Display
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
            say(_resume_line(pipeline, resumption))
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
        say(_last_lines(pipeline, perf_counter() - start, stop.received is not None))
        return stop.exit_code


def _launch_line(pipeline: SerialPipeline) -> str:
    """Prints the expected resources of the run."""
    from rlframe.checkpoint import describe_cost
    from rlframe.pipeline import build

    cfg = pipeline.cfg
    size = build.buffer_nbytes(cfg, pipeline.factory.spec)
    memory = f'replay buffer {size / 2**20:.1f} MiB' if size else 'no replay buffer'
    saved = describe_cost(size, cfg.checkpoint)
    device = pipeline.policy.get_attribute('device')
    verb = 'averages' if pipeline.evaluator.scores_returns else 'reaches'
    goal = _goal(pipeline)
    until = f'until an evaluation {verb} {goal}' if goal else 'until a budget is spent'
    if pipeline.past_goal:
        until = f'until a budget is spent (the goal of {goal} was reached)'
    return (
        f'{cfg.policy.type} on {pipeline.collection.summary(cfg)}; {memory}; {saved}; device {device}, {cfg.num_threads} torch thread(s);'
        f' seed {cfg.seed}; {until}'
    )


def _goal(pipeline: SerialPipeline) -> str:
    """Prints the score that ends training, if there is one."""
    goal = pipeline.evaluator.stop_value
    if isinstance(goal, int | float):
        return f'{goal:g}'
    return '' if goal is None else pipeline.evaluator.describe(goal)


def _resume_line(pipeline: SerialPipeline, resumption: Resumption) -> str:
    """Prints the point from which a run is resumed."""
    progress, exact = pipeline.progress, '' if pipeline.exact else ' (not exact)'
    done = f'\n{nothing_left(pipeline)}' if pipeline.complete else ''
    return (
        f'resumes{exact} from {short_path(resumption.checkpoint)}: {progress.envstep:,} env steps,'
        f' {progress.train_iter:,} updates{done}'
    )


def _last_lines(pipeline: SerialPipeline, seconds: float, interrupted: bool) -> str:
    """Prints how the run ended, where its results are, and how to score them."""
    progress, evaluator, folder = pipeline.progress, pipeline.evaluator, short_path(pipeline.folder)
    score, goal = evaluator.describe(evaluator.best), _goal(pipeline)
    state = 'solved' if pipeline.solved else 'not solved' if goal else 'done'
    state = 'interrupted and saved' if interrupted else state
    best = f'best evaluation {score}' if score else 'never evaluated'
    goal = f' (goal {goal})' if goal else ''
    counts = f'{progress.envstep:,} env steps, {progress.train_iter:,} updates, {seconds:.1f} s'
    lines = [f'{state}: {best}{goal} after {counts}. Results: {folder}']
    data = config.config_data(*config.split_config(pipeline.cfg))
    path = _import_path(data)
    if interrupted:
        lines.append(f'resume: {path}python -m rlframe.entry --resume {folder}{_flag(data)}')
    if score:
        flag = _flag(config.as_played(data))
        lines.append(f'evaluate: {path}python -m rlframe.entry eval {folder}{flag}')
    return '\n'.join(lines)


def _flag(data: Mapping[str, Any]) -> str:
    """Returns the flag that later commands need if this user has no key, so the run is not recognised as their own."""
    return ' --trust' if not has_key() and config.reaching_values(data) else ''


def _import_path(data: Mapping[str, Any]) -> str:
    """Returns the ``PYTHONPATH`` setting that a command in the working directory needs to find the config's modules."""
    names = {name.partition('.')[0] for name in config.modules_of(data)}
    files = [getattr(sys.modules.get(name), '__file__', None) for name in sorted(names)]
    before = sys.path[: sys.path.index(STDLIB)] if STDLIB in sys.path else sys.path
    searched = [Path(entry).absolute() for entry in before]  # all that is not there in every process
    folders: list[Path] = []
    for file in files:
        folder = Path(file or '.').absolute().parent
        folder = folder.parent if file and Path(file).name == '__init__.py' else folder
        if file and folder in searched and folder not in (Path.cwd(), *folders):
            folders.append(folder)
    path = os.pathsep.join(shlex.quote(short_path(folder)) for folder in folders)
    return f'PYTHONPATH={path}{os.pathsep}$PYTHONPATH ' if path else ''
