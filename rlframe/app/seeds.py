"""Trains one config on several seeds at a time, in processes of their own or stacked in one, and averages their scores."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import queue
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.config import compile_config, config_pair, split_config
from rlframe.config.rules import check_serial
from rlframe.display.text import begin_line
from rlframe.errors import ConfigError, RLFrameError, WorkerLostError
from rlframe.pipeline import build
from rlframe.run.child_process import ChildProcess
from rlframe.run.exit_guard import exits_as_errors
from rlframe.run.machine import usable_cores
from rlframe.run.run_folder import home_of_runs, new_folder
from rlframe.utils.serialize import from_parent, to_child

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.pipeline.serial import SerialPipeline

MOST_SEEDS = 1000
"""Largest number of seeds of one call."""
POLL_SECONDS = 0.2
"""Seconds between two looks at the processes."""
SAVE_SECONDS = 60.0
"""Seconds that interrupted runs have to save themselves."""
MESSAGE = '\x1erlframe '
"""Start of the lines by which a process tells its parent fields of its ``SeedRun``; all others are the output of envs."""
MESSAGE_SECONDS = 0.5
"""Seconds between two messages."""


@dataclasses.dataclass
class SeedRun:
    """The run of one seed."""

    seed: int
    """Its seed."""
    state: str = 'waiting'
    """``'waiting'``, ``'running'``, ``'solved'``, ``'not solved'``, ``'done'`` (without a goal), ``'interrupted'`` or
    ``'failed'``."""
    folder: Path | None = None
    """Its run folder; None as long as there is none."""
    envstep: int = 0
    """Env steps so far."""
    train_iter: int = 0
    """Train iterations so far."""
    mean_return: float = math.nan
    """Mean return of the last training episodes; NaN if none ended."""
    score: float = math.nan
    """Score of the last evaluation; NaN if there was none."""
    seconds: float = 0.0
    """Duration."""
    error: str = ''
    """Why it failed."""
    note: str = ''
    """Why it is a new run, if it was to be resumed."""

    @property
    def is_complete(self) -> bool:
        """Whether it trained to its end."""
        return self.state in ('solved', 'not solved', 'done')


OnChange = Callable[[Sequence[SeedRun]], object]
"""Called with all runs several times a second."""


def parse_seeds(text: str) -> list[int]:
    """Reads ``0-4``, ``0,3,7`` or ``0-2,7``.

    Raises:
        ConfigError: If it is none of these, or names a seed twice.
    """
    parts = [re.fullmatch(r'([0-9]{1,10})(?:-([0-9]{1,10}))?', part.strip()) for part in text.split(',')]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    is_good = all(parts) and all(ranges) and sum(map(len, ranges)) <= MOST_SEEDS
    seeds = list(itertools.chain(*ranges)) if is_good else []
    if not seeds or len(set(seeds)) < len(seeds):
        expected = f'different seeds, at most {MOST_SEEDS:,}, such as 0-4 or 0,3,7'
        raise ConfigError('bad value', where='--seeds', got=text, expected=expected)
    return seeds


def train_seeds(  # noqa: PLR0913  # each is given by name
    pair: Any,
    seeds: Sequence[int],
    *,
    jobs: int | None = None,
    stacked: bool = False,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    resume: bool = False,
    home: str | Path | None = None,
    on_change: OnChange | None = None,
    should_stop: Callable[[], bool] | None = None,
    **given: Any,
) -> list[SeedRun]:
    """Trains a config on several seeds, in processes that end with this one.

    A seed that fails does not stop the others.

    Args:
        pair: The path of a config file, the name of a shipped config, or the pair of main and create config.
        seeds: The seeds.
        jobs: Processes at a time; by default, as many as there are cores for the torch threads of each
            (``num_threads``).
        stacked: Whether seeds share a process, an equal part of them in each, and make their updates and evaluations together;
            otherwise each has a process of its own.
        overrides: ``key=value`` texts, or a dict of dotted keys and values.
        resume: Whether to resume the newest run of each seed in ``home``, if there is one.
        home: Folder that gets a run folder for each seed; None: the working directory.
        on_change: Called with all runs several times a second.
        should_stop: Asked several times a second; if it returns True, all runs save themselves and end.
        given: ``exp_name``, ``max_env_step`` and ``max_train_iter``, if they override the config.

    Returns:
        The runs, in the order of the seeds.

    Raises:
        ConfigError: If the config is invalid, or its policy cannot act in its env or be stacked, or ``home`` is a file or a run
            folder; then nothing was started.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError('bad value', where='--jobs', got=jobs, expected='an int >= 1')
    if not seeds:
        raise ConfigError('no seed to train', where='seeds', got=list(seeds), expected='at least one int')
    main, create = config_pair(pair)
    cfgs = [compile_config(main, create, overrides=overrides, seed=seed, **given) for seed in seeds]
    check_serial(cfgs[0])
    build.check_policy(cfgs[0], build.make_factory(cfgs[0]).spec)
    if stacked:
        from rlframe.pipeline.stacked_seeds import check_seeds

        check_seeds(cfgs[0])
    at_a_time = jobs or max(usable_cores() // cfgs[0].num_threads, 1)
    place = None if home is None else str(home_of_runs(home))
    # the seeds of each process
    count = min(at_a_time, len(seeds)) if stacked else len(seeds)
    shares = [list(range(i, len(seeds), count)) for i in range(count)]
    data = [to_child(([cfgs[i] for i in share], resume, place), 'config') for share in shares]
    return _Team(seeds, shares, data, at_a_time).train(on_change, should_stop)


class _Team:
    """The processes of several seeds; ``shares`` are the places of the seeds of each, and ``data`` what it reads."""

    def __init__(
        self, seeds: Sequence[int], shares: Sequence[Sequence[int]], data: Sequence[bytes], jobs: int
    ) -> None:
        self.runs = [SeedRun(seed) for seed in seeds]
        self._shares = shares
        self._data = data
        self._jobs = jobs
        self._children: dict[int, tuple[ChildProcess, float]] = {}
        self._messages: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()

    def train(self, on_change: OnChange | None, should_stop: Callable[[], bool] | None) -> list[SeedRun]:
        waiting = list(range(len(self._shares)))
        deadline = math.inf
        try:
            while waiting or self._children:
                if deadline == math.inf and should_stop is not None and should_stop():
                    waiting = []
                    deadline = monotonic() + SAVE_SECONDS
                    for child, _ in self._children.values():
                        child.terminate()
                while waiting and len(self._children) < self._jobs:
                    self._start(waiting.pop(0))
                self._read_messages()
                self._reap(is_stopping=deadline < math.inf)
                if on_change is not None:
                    on_change(self.runs)
                if monotonic() > deadline:
                    break
        finally:
            # after an exception, too, they may save themselves
            deadline = min(deadline, monotonic() + SAVE_SECONDS)
            for child, _ in self._children.values():
                child.terminate()
            for child, _ in self._children.values():
                child.end(max(deadline - monotonic(), 0.0))
        return self.runs

    def _start(self, index: int) -> None:
        runs = [self.runs[i] for i in self._shares[index]]
        places = {run.seed: i for i, run in zip(self._shares[index], runs, strict=True)}
        names = ', '.join(str(run.seed) for run in runs)

        def take(line: str) -> bool:
            is_message = line.startswith(MESSAGE)
            if is_message:
                facts = json.loads(line.removeprefix(MESSAGE))
                self._messages.put((places[facts.pop('seed')], facts))
            return is_message

        try:
            child = ChildProcess(f'seed {names}', 'rlframe.app.seeds', (), self._data[index], take)
        except WorkerLostError as error:  # of these seeds alone
            for run in runs:
                run.state = 'failed'
                run.error = error.message
            return
        for run in runs:
            run.state = 'running'
        self._children[index] = child, monotonic()

    def _read_messages(self) -> None:
        """Takes the messages of the processes; waits a moment for the first."""
        is_first = True
        while True:
            try:
                index, facts = self._messages.get(timeout=POLL_SECONDS if is_first else 0)
            except queue.Empty:
                return
            is_first = False
            for name, value in facts.items():
                setattr(self.runs[index], name, Path(value) if name == 'folder' else value)

    def _reap(self, is_stopping: bool) -> None:
        for index, (child, start) in list(self._children.items()):
            runs = [self.runs[i] for i in self._shares[index]]
            how = child.ended
            for run in runs:
                run.seconds = monotonic() - start if run.state == 'running' else run.seconds
            if how is None:
                continue
            child.end(0)  # and its own children
            self._read_messages()
            del self._children[index]
            for run in runs:
                if run.state == 'running':
                    run.state = 'interrupted' if is_stopping else 'failed'
                    run.error = '' if is_stopping else how or 'it ended without a result'


def main() -> None:
    """Trains seeds in a process of theirs, by the configs on stdin, and reports to the parent; several are stacked.

    Stdin also says whether to resume the newest run of each config, and the folder of the runs. SIGTERM saves the runs and ends
    them.
    """
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    try:
        cfgs, resumes, place = from_parent(sys.stdin.buffer.read())
        if len(cfgs) > 1:
            _train_stacked(cfgs, resumes, place, stopped)
            return
        with exits_as_errors(), _pipeline(cfgs[0], resumes, place) as pipeline:
            _train(pipeline, stopped)
    except RLFrameError as error:
        sys.stderr.write(f'\nrlframe: {_in_one_line(error)}\n')
        sys.exit(error.exit_code)


def _train_stacked(
    cfgs: Sequence[ExperimentConfig], resumes: bool, place: str | None, stopped: Sequence[int]
) -> None:
    """Trains seeds together; one that fails leaves, and tells the parent why."""
    from rlframe.pipeline.stacked_seeds import StackedSeeds

    together = StackedSeeds(cfgs[0])

    def train(cfg: ExperimentConfig) -> None:
        try:
            with exits_as_errors(), _pipeline(cfg, resumes, place) as pipeline:
                together.join(pipeline)
                _train(pipeline, stopped)
        except Exception as error:  # of this seed alone
            if not isinstance(error, RLFrameError):
                traceback.print_exc()
            _tell({'seed': cfg.seed, 'state': 'failed', 'error': _in_one_line(error)})

    together.run([partial(train, cfg) for cfg in cfgs])


def _in_one_line(error: Exception) -> str:
    return f'{type(error).__name__}: {" ".join(str(error).split())}'


def _train(pipeline: SerialPipeline, stopped: Sequence[int]) -> None:
    """Trains a run until its end, or until something is in ``stopped``, and tells the parent of it."""
    from rlframe.pipeline.training import run_until

    last = monotonic()

    def is_over() -> bool:
        nonlocal last
        if monotonic() - last > MESSAGE_SECONDS:
            last = monotonic()
            _send(pipeline, 'running')
        return bool(stopped)

    _send(pipeline, 'running')
    if not pipeline.complete:
        run_until(pipeline, is_over)
    outcome = 'not solved' if pipeline.evaluator.goal else 'done'
    outcome = 'solved' if pipeline.solved else outcome
    _send(pipeline, 'interrupted' if stopped else outcome)


def _pipeline(cfg: ExperimentConfig, resumes: bool, place: str | None) -> SerialPipeline:
    """Returns a new run of a config, or the newest one, to be resumed; without such a run, a new one."""
    from rlframe.pipeline.resume import newest_run, resume
    from rlframe.pipeline.serial import SerialPipeline

    home = None if place is None else Path(place)
    start = newest_run(cfg, home=home) if resumes else None
    if start is None or isinstance(start, Path):
        if resumes:
            _tell({'seed': cfg.seed, 'note': begin_line(start)})
        return SerialPipeline(cfg, start or partial(new_folder, cfg.exp_name, cfg.seed, home))
    found = resume(start, split_config(cfg))
    return SerialPipeline(found.cfg, found.folder, resume=found.saved)


def _send(pipeline: SerialPipeline, state: str) -> None:
    """Tells the parent the progress of a run."""
    facts = {
        'seed': pipeline.cfg.seed,
        'state': state,
        'folder': str(pipeline.folder),
        'envstep': pipeline.progress.envstep,
        'train_iter': pipeline.progress.train_iter,
        'mean_return': float(pipeline.collector.mean_return()),
        'score': float(pipeline.evaluator.score),
    }
    _tell(facts)


def _tell(facts: Mapping[str, Any]) -> None:
    """Tells the parent fields of the ``SeedRun`` of a seed."""
    os.write(1, f'\n{MESSAGE}{json.dumps(facts)}\n'.encode())
