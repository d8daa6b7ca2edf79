"""The commands that are useful after a run, as they work where they are printed."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.display.saying import program, short_path
from rlframe.run.budgets import BUDGETS, set_budgets, spent_budgets
from rlframe.safety.trust_key import has_key

STDLIB = str(Path(os.__file__).parent)
"""First entry of ``sys.path`` that every process has; entries before it belong to this process or shell."""
NEXT = {'evaluate': 'eval', 'plot': 'plot', 'report': 'report', 'export': 'export'}
"""Next steps with a scored run, and their verbs on the command line."""


def shell_commands(pipeline: Any, interrupted: bool) -> Iterator[str]:
    """Yields lines with the commands for a run that has ended, the most useful first.

    Args:
        pipeline: The run, serial or parallel.
        interrupted: Whether it was stopped before its end.
    """
    if config.own_parts(pipeline.cfg):
        return  # no command could create them
    folder = shlex.quote(short_path(pipeline.folder))
    data = config.config_data(*config.split_config(pipeline.cfg))
    start = f'{import_path(data)}{program()}'
    if interrupted:
        yield f'resume: {start} --resume {folder}{trust_flag(data)}'
    if pipeline.evaluator.describe(pipeline.evaluator.best):
        flag = trust_flag(config.as_played(data))
        for words, verb in NEXT.items():
            yield f'{words}: {start} {verb} {folder}{flag}'
    if not interrupted and not pipeline.solved and (budgets := set_budgets(pipeline.cfg)):
        keys = spent_budgets(pipeline.cfg, pipeline.progress) or budgets[:1]
        larger = ' '.join(f'{BUDGETS[key][2]} {_larger(pipeline, key)}' for key in keys)
        yield f'train further: {start} --resume {folder} {larger}{trust_flag(data)}'


def _larger(pipeline: Any, key: str) -> int:
    """Returns a multiple of a budget that leaves at least about half of it to train, also after a run that exceeded it."""
    budget, used = pipeline.cfg[key], getattr(pipeline.progress, BUDGETS[key][0])
    return int(budget * max(2, 1 + round(used / budget)))


def trust_flag(data: Mapping[str, Any]) -> str:
    """Returns the flag that later commands need if this user has no key, so the run is not recognised as their own."""
    return ' --trust' if not has_key() and config.reaching_values(data) else ''


def import_path(data: Mapping[str, Any]) -> str:
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
