"""Trains one config on several seeds at a time, each in a process of its own, and averages their scores."""

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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.config import compile_config, config_pair, split_config
from rlframe.config.rules import check_serial
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


def train_seeds(
    pair: Any,
    seeds: Sequence[int],
    *,
    jobs: int | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    resume: bool = False,
    home: str | Path | None = None,
    on_change: OnChange | None = None,
    should_stop: Callable[[], bool] | None = None,
    **given: Any,
) -> list[SeedRun]:
    """Trains a config on several seeds, each in a process that ends with this one.

    A seed that fails does not stop the others.

    Args:
        pair: The path of a config file, the name of a shipped config, or the pair of main and create config.
        seeds: The seeds.
        jobs: Processes at a time; by default, as many as there are cores for the torch threads of each
            (``num_threads``).
        overrides: ``key=value`` texts, or a dict of dotted keys and values.
        resume: Whether to resume the newest run of each seed in ``home``, if there is one.
        home: Folder that gets a run folder for each seed; None: the working directory.
        on_change: Called with all runs several times a second.
        should_stop: Asked several times a second; if it returns True, all runs save themselves and end.
        given: ``exp_name``, ``max_env_step`` and ``max_train_iter``, if they override the config.

    Returns:
        The runs, in the order of the seeds.

    Raises:
        ConfigError: If the config is invalid, or its policy cannot act in its env, or ``home`` is a file or a run folder;
            then nothing was started.
    """
    if jobs is not None and jobs < 1:
        raise ConfigError('bad value', where='--jobs', got=jobs, expected='an int >= 1')
    if not seeds:
        raise ConfigError('no seed to train', where='seeds', got=list(seeds), expected='at least one int')
    main, create = config_pair(pair)
    cfgs = [compile_config(main, create, overrides=overrides, seed=seed, **given) for seed in seeds]
    check_serial(cfgs[0])
    build.check_policy(cfgs[0], build.make_factory(cfgs[0]).spec)
    at_a_time = jobs or max(usable_cores() // cfgs[0].num_threads, 1)
    place = None if home is None else str(home_of_runs(home))
    data = [to_child((cfg, resume, place), 'config') for cfg in cfgs]
    return _Team(seeds, data, at_a_time).train(on_change, should_stop)


class _Team:
    """The processes of several seeds."""

    def __init__(self, seeds: Sequence[int], data: Sequence[bytes], jobs: int) -> None:
        self.runs = [SeedRun(seed) for seed in seeds]
        self._data, self._jobs = data, jobs
        self._children: dict[int, tuple[ChildProcess, float]] = {}
        self._messages: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()

    def train(self, on_change: OnChange | None, should_stop: Callable[[], bool] | None) -> list[SeedRun]:
        waiting = list(range(len(self.runs)))
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
        run = self.runs[index]

        def take(line: str) -> bool:
            is_message = line.startswith(MESSAGE)
            if is_message:
                self._messages.put((index, json.loads(line.removeprefix(MESSAGE))))
            return is_message

        try:
            child = ChildProcess(f'rlframe-seed-{run.seed}', 'rlframe.app.seeds', (), self._data[index], take)
        except OSError as error:
            raise WorkerLostError(f'no process could be started for seed {run.seed}: {error}') from error
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
            run = self.runs[index]
            how = child.ended
            run.seconds = monotonic() - start
            if how is None:
                continue
            child.end(0)  # and its own children
            self._read_messages()
            del self._children[index]
            if run.state == 'running':
                run.state = 'interrupted' if is_stopping else 'failed'
                run.error = '' if is_stopping else how or 'it ended without a result'


def main() -> None:
    """Trains one seed in its own process, by the config on stdin, and reports to the parent.

    Stdin also says whether to resume the newest run of the config, and the folder of the runs. SIGTERM saves the run and ends it.
    """
    from rlframe.pipeline.training import run_until

    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    try:
        cfg, resumes, place = from_parent(sys.stdin.buffer.read())
        with exits_as_errors(), _pipeline(cfg, resumes, place) as pipeline:
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
    except RLFrameError as error:
        sys.stderr.write(f'\nrlframe: {type(error).__name__}: {" ".join(str(error).split())}\n')
        sys.exit(error.exit_code)


def _pipeline(cfg: ExperimentConfig, resumes: bool, place: str | None) -> SerialPipeline:
    """Returns a new run of a config, or the newest one, to be resumed; without such a run, a new one."""
    from rlframe.pipeline.resume import newest_run, resume
    from rlframe.pipeline.serial import SerialPipeline

    home = None if place is None else Path(place)
    start = newest_run(cfg, home=home) if resumes else None
    if start is None or isinstance(start, Path):
        return SerialPipeline(cfg, start or partial(new_folder, cfg.exp_name, cfg.seed, home))
    found = resume(start, split_config(cfg))
    return SerialPipeline(found.cfg, found.folder, resume=found.saved)


def _send(pipeline: SerialPipeline, state: str) -> None:
    """Tells the parent the progress of a run."""
    facts = {
        'state': state,
        'folder': str(pipeline.folder),
        'envstep': pipeline.progress.envstep,
        'train_iter': pipeline.progress.train_iter,
        'mean_return': float(pipeline.collector.mean_return()),
        'score': float(pipeline.evaluator.score),
    }
    os.write(1, f'\n{MESSAGE}{json.dumps(facts)}\n'.encode())
