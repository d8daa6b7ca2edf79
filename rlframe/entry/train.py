"""``rlframe train``: trains as a config says, shows the progress, and says where the results are."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from rlframe.config import compile_config
from rlframe.config.reader import read_config
from rlframe.entry.stop import StopSignal
from rlframe.errors import ConfigWarning
from rlframe.utils.field import ResolvedConfig

if TYPE_CHECKING:
    from rlframe.pipeline import SerialPipeline


def train(args: argparse.Namespace) -> int:
    """Does what the command line asks for and returns the exit code."""
    main, create = read_config(args.config)
    budgets = {'max_env_step': args.env_step, 'max_train_iter': args.train_iter}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        cfg = compile_config(
            main, create, overrides=args.overrides, seed=args.seed, exp_name=args.exp_name, **budgets
        )
    for warning in caught:
        sys.stderr.write(f'rlframe: warning: {warning.message}\n')
    return run(cfg, args.exp_name)


def run(cfg: ResolvedConfig, folder_name: str | None = None) -> int:
    """Trains by a compiled config and returns the exit code."""
    from rlframe.entry.display import Display
    from rlframe.pipeline import SerialPipeline
    from rlframe.utils.run_folder import named_folder

    start = perf_counter()
    folder = (lambda: named_folder(folder_name)) if folder_name else None
    with StopSignal() as stop, SerialPipeline(cfg, folder) as pipeline:
        _say(_launch_line(pipeline))
        with Display(pipeline) as display:

            def after_step(_: SerialPipeline) -> bool:
                display.show()
                return stop.received is not None

            pipeline.run(after_step)
        if stop.received is not None:
            pipeline.save_latest()
        _say(_last_lines(pipeline, perf_counter() - start, stop.received is not None))
        return stop.exit_code


def _say(text: str) -> None:
    sys.stdout.write(text + '\n')
    sys.stdout.flush()


def _launch_line(pipeline: SerialPipeline) -> str:
    """Says what the run will take."""
    from rlframe import build

    cfg, spec = pipeline.cfg, pipeline.factory.spec
    size = build.buffer_nbytes(cfg, spec)
    memory = f'replay buffer {size / 2**20:.1f} MiB' if size else 'no replay buffer'
    envs = f'{cfg.env.collector_env_num} envs of {spec.name} ({cfg.env.manager.type})'
    device = pipeline.policy.get_attribute('device')
    goal = pipeline.evaluator.stop_value
    until = f'until an evaluation averages {goal:g}' if goal is not None else 'until a budget is spent'
    return (
        f'{cfg.policy.type} on {envs}; {memory}; device {device}, {cfg.num_threads} torch thread(s);'
        f' seed {cfg.seed}; {until}'
    )


def _last_lines(pipeline: SerialPipeline, seconds: float, interrupted: bool) -> str:
    """Says how the run ended, where its results are, and how to score them."""
    progress, evaluator, folder = pipeline.progress, pipeline.evaluator, _short(pipeline.folder)
    state = 'interrupted and saved' if interrupted else 'solved' if pipeline.stopped else 'not solved'
    best = f'best evaluation {evaluator.best:.1f}' if evaluator.best > -float('inf') else 'never evaluated'
    goal = f' (goal {evaluator.stop_value:g})' if evaluator.stop_value is not None else ''
    counts = f'{progress.envstep:,} env steps, {progress.train_iter:,} updates, {seconds:.1f} s'
    return f'{state}: {best}{goal} after {counts}. Results: {folder}\nscore it: python -m rlframe.entry eval {folder}'


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
