"""Runs with and without Ray, to be compared bit by bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from runs import CASES, DQN, ROOT, records

from rlframe.config import compile_config, split_config
from rlframe.config.reader import read_config
from rlframe.data import Batch
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume as find_run
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils.field import ResolvedConfig

RAY = ('collector.backend=ray',)
BATTLES = {
    'battle samples': ('-c', 'configs/tictactoe_selfplay_dqn.py', *DQN[2:]),
    'battle episodes': (
        *('-c', 'configs/tictactoe_selfplay_dqn.py', *DQN[2:], 'collector.type=episode_1v1'),
        *('collector.get_train_sample=true', 'policy.collect.n_sample=None', 'policy.collect.n_episode=4'),
    ),
}
"""Games of several players, as ``runs.CASES``; they need PettingZoo."""


def output_of(cwd: Path, *words: str) -> str:
    """Runs a Python program in a folder, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def config_of(case: str, *overrides: str) -> ResolvedConfig:
    """Returns the config of a case of ``runs.CASES`` or ``BATTLES``."""
    _, config, *given = {**CASES, **BATTLES}[case]
    return compile_config(*read_config(str(ROOT / config)), seed=3, overrides=[*given, *overrides])


def train_to(
    folder: Path,
    train_iter: int,
    case: str,
    *overrides: str,
    resume: Path | None = None,
    after_step: Any = None,
) -> dict[str, Any]:
    """Trains in this process and returns what is left at the end: everything but what only the collector knows.

    Args:
        folder: Where the run is written.
        train_iter: Train iterations after which it ends.
        case: Name of the case.
        overrides: Further options.
        resume: Run folder to resume, whose latest checkpoint is taken.
        after_step: Called after each round.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cfg = config_of(case, *overrides, f'max_train_iter={train_iter}')
    if resume is not None:
        cfg = find_run(resume, split_config(cfg)).cfg
    with SerialPipeline(cfg, folder, resume=resume and resume / 'ckpt' / 'latest') as pipeline:
        pipeline.run(after_step)
        pipeline.checkpoints.save_latest()
    state, _ = load_checkpoint(folder / 'ckpt' / 'latest')
    state['progress'] |= {'wall_time': 0}
    log = state.pop('collector')['log']
    kept = [
        {k: v for k, v in record.items() if not k.startswith(('ray/', 'process/'))}
        for record in records(folder)
    ]
    return {**state, 'window': log['window'], 'recent': log['recent'], 'records': kept}


def columns(data: Any) -> Any:
    """Returns a copy of what a collector returned, as plain arrays."""
    if isinstance(data, Batch):
        return {name: np.array(column) for name, column in data.items()}
    return [columns(part) for part in data]


def is_conserved(collector: Any) -> bool:
    """Whether everything that a collector asked of its actors is accounted for."""
    c = collector
    return bool(c.requested == c.delivered + c.lost + c.stale + c.in_flight)


def descendants(pid: int) -> set[int]:
    """Returns the processes that a process started, and theirs."""
    parents: dict[int, int] = {}
    for entry in Path('/proc').iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / 'stat').read_text().rpartition(')')[2].split()[1])
            except OSError:  # it has just ended
                continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in {pid, *found}} - found:
        found |= more
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False
