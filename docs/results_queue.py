"""Measures rows and seeds one after another, each in a process of its own, and continues where an earlier start ended."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from results_child import Job
from results_rows import Row, Run, is_current, name_of, read_rows, read_runs, record

from rlframe.run.child_process import ChildProcess
from rlframe.run.metrics import METRICS

POLL_SECONDS = 0.5
SAVE_SECONDS = 120.0
"""Seconds that interrupted runs have to save themselves."""


class Order(NamedTuple):
    """What to measure."""

    names: Callable[[dict[str, Row]], Sequence[str]]
    """Returns the names of the rows, in order; it is asked again after each run, since configs may change."""
    seeds: Sequence[int]
    work: Path
    """Folder of runs that are not complete, and of records in ``done``."""
    jobs: int = 1
    """How many runs at a time."""
    minutes: float | None = None
    """Limit of the training time of a run."""


class Place(NamedTuple):
    """One run that an order asks for."""

    row: Row
    seed: int
    key: str
    """Name of its folder, and of its record."""


def title(job: Job) -> str:
    """Returns how a run is called."""
    return f'{job.row.name} seed {job.seed}'


@dataclass
class Queue:
    """The runs of an order."""

    order: Order
    running: dict[str, tuple[Job, ChildProcess]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    finished: int = 0
    waiting: list[Place] | None = None
    """What is not begun; None if configs or records may have changed."""
    signal: int = 0
    """The signal that ended the queue; 0 if none did."""

    def run(self) -> int:
        """Measures until nothing is left or a signal comes, and returns the exit code."""
        with _handlers(self._take):
            try:
                while not self.signal and self._step():
                    time.sleep(POLL_SECONDS)
            finally:
                self._end()
        collect(self.order.work)
        for text in self.failed.values():
            _say(text)
        return 128 + self.signal if self.signal else int(bool(self.failed))

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def _step(self) -> bool:
        """Starts and ends processes, and returns whether there is work."""
        for key, (job, child) in list(self.running.items()):
            if child.ended is not None:
                self._close(key, job, child)
        while len(self.running) < self.order.jobs and (place := self._next()) is not None:
            self._start(place)
        self._show()
        return bool(self.running)

    def _next(self) -> Place | None:
        if self.waiting is None:
            busy = {*self.running, *self.failed}
            self.waiting = [place for place in left(self.order) if place.key not in busy]
        return self.waiting.pop(0) if self.waiting else None

    def _start(self, place: Place) -> None:
        work = self.order.work
        job = Job(
            place.row,
            place.seed,
            str(work / place.key),
            str(done_file(work, place.key)),
            place.row.fingerprint,
            self.order.minutes,
        )
        child = ChildProcess(place.key, 'results_child', (job.text(),), b'', lambda line: None)
        self.running[place.key] = (job, child)
        _say(f'{title(job)} started')

    def _close(self, key: str, job: Job, child: ChildProcess) -> None:
        del self.running[key]
        self.waiting = None
        reason = child.ended
        child.end(0)
        if not Path(job.done).exists():
            self.failed[key] = f'{title(job)} failed: {reason or "it wrote no record"}'
            _say(self.failed[key])
            return
        self.finished += 1
        run = json.loads(Path(job.done).read_text(encoding='utf-8'))
        _say(f'{title(job)} done: {run["mean"]:g} in {run["cpu_seconds"]:,} CPU seconds')
        collect(self.order.work)
        shutil.rmtree(job.folder)

    def _end(self) -> None:
        """Asks the runs to save themselves and end, and waits for them."""
        for _, child in self.running.values():
            child.terminate()
        until = time.monotonic() + SAVE_SECONDS
        for job, child in self.running.values():
            while child.ended is None and time.monotonic() < until:
                time.sleep(0.1)
            child.end(0)
            _say(f'{title(job)} interrupted')

    def _show(self) -> None:
        """Shows the progress in a terminal."""
        if sys.stderr.isatty():
            count = len(self.waiting or ())
            parts = [f'{title(job)}: {_envstep(Path(job.folder)):,}' for job, _ in self.running.values()]
            text = f'{self.finished} done, {count} waiting | ' + ', '.join(parts)
            text += ' env steps' if parts else ''
            sys.stderr.write('\r\033[K' + text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()


def left(order: Order) -> list[Place]:
    """Returns what is still to be measured, in order."""
    rows = read_rows()
    records = [*read_runs(), *_done(order.work)]
    have = {(name_of(run), run['seed']) for run in records if is_current(run, rows)}
    return [
        Place(rows[name], seed, f'{name}-seed{seed}-{rows[name].fingerprint}')
        for name in order.names(rows)
        for seed in order.seeds
        if (name, seed) not in have
    ]


def collect(work: Path) -> int:
    """Adds the records of a work folder to those of the page, unless configs changed since, and returns how many."""
    rows = read_rows()
    runs = [run for run in _done(work) if is_current(run, rows)]
    record(runs, rows)
    return len(runs)


def done_file(work: Path, key: str) -> Path:
    """Returns the file for the record of a run."""
    return work / 'done' / f'{key}.json'


def _done(work: Path) -> list[Run]:
    files = sorted((work / 'done').glob('*.json'))
    return [json.loads(file.read_text(encoding='utf-8')) for file in files]


def _envstep(folder: Path) -> int:
    """Returns the env steps of a run so far, as its last metrics tell."""
    file = folder / 'run' / METRICS
    if not file.exists():
        return 0
    with open(file, 'rb') as stream:
        stream.seek(max(0, file.stat().st_size - 4096))
        lines = stream.read().splitlines()
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError):
            return int(json.loads(line)['envstep'])
    return 0


def _say(text: str) -> None:
    start = '\r\033[K' if sys.stderr.isatty() else ''
    sys.stderr.write(f'{start}{time.strftime("%H:%M:%S")} {text}\n')
    sys.stderr.flush()


@contextlib.contextmanager
def _handlers(take: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Lets SIGINT and SIGTERM end the queue in order."""
    old = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
