"""The lines at the start and at the end of a training run, serial or parallel."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.entry.terminal.saying import short_path
from rlframe.pipeline.ending import nothing_left
from rlframe.safety.trust_key import has_key

if TYPE_CHECKING:
    from rlframe.pipeline.parallel.pipeline import ParallelPipeline
    from rlframe.pipeline.resume import Resumption
    from rlframe.pipeline.serial import SerialPipeline

STDLIB = str(Path(os.__file__).parent)
"""First entry of ``sys.path`` that every process has; entries before it belong to this process or shell."""


def resume_line(pipeline: SerialPipeline | ParallelPipeline, resumption: Resumption) -> str:
    """Returns a line with the point from which a run is resumed."""
    progress, exact = pipeline.progress, '' if pipeline.exact else ' (not exact)'
    done = f'\n{nothing_left(pipeline)}' if pipeline.complete else ''
    return (
        f'resumes{exact} from {short_path(resumption.checkpoint)}: {progress.envstep:,} env steps,'
        f' {progress.train_iter:,} updates{done}'
    )


def last_lines(pipeline: SerialPipeline | ParallelPipeline, seconds: float, interrupted: bool) -> str:
    """Returns lines with how the run ended, where its results are, and how to score them."""
    progress, evaluator, folder = pipeline.progress, pipeline.evaluator, short_path(pipeline.folder)
    score, goal = evaluator.describe(evaluator.best), pipeline.evaluator.goal
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
