"""Measures one seed of one row in a process of its own: trains or resumes it, then scores its best checkpoint."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from results_rows import Row, replace_file

from rlframe.app.scoring import Request, score
from rlframe.entry.__main__ import main as rlframe
from rlframe.run.machine import PACKAGES, machine
from rlframe.run.metrics import records
from rlframe.run.progress import MEAN

ELAPSED = 'time/elapsed'
NEVER = '1e12'
"""A stop value that no return reaches."""
STOPPED = 128 + signal.SIGTERM
"""Exit code of a run that was asked to end, and saved itself."""


@dataclass(frozen=True)
class Job:
    """What a child measures."""

    row: Row
    seed: int
    folder: str
    """Folder of this run only; what it holds is continued."""
    done: str
    """File for the record."""
    fingerprint: str
    """That of the row when the run began."""
    minutes: float | None = None
    """Limit of the training time."""

    def text(self) -> str:
        """Returns the job as JSON."""
        return json.dumps(asdict(self))


@dataclass
class Spent:
    """What the sessions of a run took together."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    ended: str = ''
    """How training ended: ``'budget'`` or ``'minutes'``; empty as long as it has not."""


def main(text: str) -> None:
    """Measures a job, and writes its record."""
    facts = json.loads(text)
    facts['row'].pop('published')
    job = Job(**{**facts, 'row': Row(**facts['row'])})
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    os.chdir(job.folder)
    state = Path('spent.json')
    spent = Spent(**json.loads(state.read_text(encoding='utf-8'))) if state.exists() else Spent()
    if not spent.ended:
        code = _train(job, spent)
        replace_file(state, json.dumps(asdict(spent)))
        if code:
            sys.exit(code)
    Path(job.done).parent.mkdir(exist_ok=True)
    replace_file(Path(job.done), json.dumps(_record(job, spent)))


def _train(job: Job, spent: Spent) -> int:
    """Trains until the run, its time or this process is to end, and returns the exit code."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: _stop_after(1.0))  # until the run listens, which takes seconds
    if job.minutes is not None:
        _stop_after(max(60 * job.minutes - spent.seconds, 1.0))
    code = rlframe(_words(job))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    spent.seconds += time.monotonic() - began
    spent.cpu_seconds += sum(os.times()[:4])
    if code == STOPPED and job.minutes is not None and spent.seconds >= 60 * job.minutes:
        spent.ended = 'minutes'
        return 0
    spent.ended = '' if code else 'budget'
    return code


def _stop_after(seconds: float) -> None:
    """Sends SIGTERM to this process after some seconds."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()


def _words(job: Job) -> list[str]:
    """Returns the arguments of the command that starts or resumes the run."""
    if (Path('run') / 'ckpt' / 'latest').exists():
        return ['train', '--resume', 'run', *_mode(job.row)]
    kept = Path('run')
    if kept.exists():
        kept.rename(f'unsaved_{time.time_ns()}')  # it was killed before its first checkpoint
    goal = [] if job.row.ends_at_goal else [f'env.stop_value={NEVER}']
    budget = [] if job.row.budget is None else ['--env-step', str(job.row.budget)]
    start = ['train', '-c', str(job.row.file), '--seed', str(job.seed), '--exp-name', 'run']
    return [*start, *budget, *_mode(job.row), *goal, *job.row.options]


def _mode(row: Row) -> list[str]:
    """Returns the flag of the mode that a config is written for."""
    return ['-m', 'parallel'] if 'comm_learner' in row.sections[1] else []


def _record(job: Job, spent: Spent) -> dict[str, Any]:
    """Scores the best checkpoint, and returns the record of the run."""
    lines = list(records(Path('run')))
    curve = [[int(line['envstep']), round(line[MEAN], 3)] for line in lines if MEAN in line]
    scored = score(Path('run'), Request(job.row.episodes))
    return {
        'row': job.row.name,
        'config': job.row.file.stem,
        'seed': job.seed,
        'fingerprint': job.fingerprint,
        'env_steps': int(max(line['envstep'] for line in lines)),
        'updates': int(max(line.get('train_iter', 0) for line in lines)),
        'seconds': round(spent.seconds, 1),
        'cpu_seconds': round(spent.cpu_seconds, 1),
        'best': max(mean for _, mean in curve),
        'mean': round(scored.mean, 3),
        'std': round(scored.std, 3),
        'returns': [round(float(value), 3) for value in scored.returns],
        'curve': curve,
        'times': _times(lines),
        'where': _where(),
    } | ({'note': f'stopped after {spent.seconds / 60:.1f} minutes'} if spent.ended == 'minutes' else {})


def _times(lines: Sequence[Mapping[str, float]]) -> list[float]:
    """Returns the seconds of training before each evaluation; pauses do not count."""
    times, waiting = [], 0
    for line in lines:
        waiting += MEAN in line
        if ELAPSED in line:
            times += [round(line[ELAPSED], 1)] * waiting
            waiting = 0
    return times + [times[-1] if times else 0.0] * waiting


def _where() -> str:
    facts = machine()
    versions = ', '.join(f'{name} {facts[name]}' for name in (*PACKAGES, 'Python') if name in facts)
    return f'{facts["processor"]}; rlframe {version("rlframe")}, {versions}; {datetime.date.today()}'
