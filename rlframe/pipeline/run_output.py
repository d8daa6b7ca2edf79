"""RunOutput: the run folder of a pipeline, locked while open, with its logs and its config."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from rlframe import config
from rlframe.config.schema import LOCAL, ROLES, ExperimentConfig
from rlframe.pipeline.resume import begin_again
from rlframe.run import run_folder
from rlframe.run.logger import check_loggers
from rlframe.run.metric_writer import MetricWriter
from rlframe.run.metrics import CHANGED, copy_records, write_record
from rlframe.run.progress import BUDGETS, Progress, set_budgets, spent_budgets
from rlframe.run.read_checkpoint import CKPT, OpenCheckpoint, open_checkpoint
from rlframe.run.write_checkpoint import clean_leftovers

if TYPE_CHECKING:
    from rlframe.parallel.pipeline import ParallelPipeline
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.worker import IBuffer

logger = logging.getLogger('rlframe.pipeline')

Pipeline: TypeAlias = 'SerialPipeline | ParallelPipeline'


def decide_whether_over(pipeline: Pipeline, saved: Mapping[str, Any]) -> None:
    """Decides whether a restored run is over under the config that it continues with.

    If the goal has changed, the best score so far decides. If a solved run gets a new budget above what it has used, it
    trains to that budget, past its goal.

    Args:
        pipeline: The run.
        saved: ``main_config`` of the checkpoint.
    """
    now = config.config_data(*config.split_config(pipeline.cfg))['main_config']
    if _goal(now) != _goal(saved):
        best = pipeline.evaluator.best
        pipeline.loop.stopped = pipeline.progress.train_iter > 0 and pipeline.evaluator.reached(best)
        pipeline.loop.past_goal = False
    elif pipeline.solved:
        budgets = set_budgets(now)
        if pipeline.stopped:
            used = {key: getattr(pipeline.progress, BUDGETS[key][0]) for key in budgets}
            budgets = [key for key in budgets if now[key] != saved[key] and used[key] < now[key]]
        pipeline.loop.past_goal = bool(budgets)
        pipeline.loop.stopped = not budgets


def _goal(main: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the scores at which training ends: the return, the evaluator's own score, and the success rate."""
    evaluator = main['policy'].get('eval', {}).get('evaluator', {})
    return main['env'].get('stop_value'), evaluator.get('stop_value'), main['env'].get('stop_success')


def nothing_left(pipeline: Pipeline) -> str:
    """Returns the reason why a run has ended, and the option to set to train further."""
    progress = pipeline.progress
    if pipeline.stopped:
        reached = ' or '.join(
            f'{flag} above {getattr(progress, counter):,} {name}' for counter, name, flag in BUDGETS.values()
        )
        return (
            f'solved: nothing is left to do. To train further, set another budget ({reached}), or an'
            ' env.stop_value that was not reached yet'
        )
    spent = {key: BUDGETS[key] for key in spent_budgets(pipeline.cfg, progress)}
    budgets = ' and of '.join(f'{pipeline.cfg[key]:,} {name}' for key, (_, name, _) in spent.items())
    flags = ' and '.join(flag for *_, flag in spent.values())
    return f'the budget of {budgets} is spent: nothing is left to do. To train further, raise {flags}'


def unused(pipeline: SerialPipeline, may_go_on: bool) -> Iterator[str]:
    """Yields warnings about a finished run: too little data for an update, unread options.

    Args:
        pipeline: The run.
        may_go_on: Whether a later call may continue training, so that options may still be read.
    """
    if pipeline.progress.train_iter:
        is_known = not may_go_on and not _reads_elsewhere(pipeline.cfg)
        for key in config.unread_user_keys(pipeline.cfg) if is_known else ():
            yield f'{key} was set but nothing read it'
    elif pipeline.finished and pipeline.replay_buffer is not None:
        held = pipeline.replay_buffer.count()
        needed = pipeline.cfg.policy.learn.batch_size
        yield f'no update was made: the replay buffer has {held} items, and an update needs {needed}'


def _reads_elsewhere(cfg: ExperimentConfig) -> bool:
    """Whether other processes read options, too, without this one's knowledge."""
    sections = [config.section_at(cfg, path) for path in ROLES.values()]
    return any(section.get('backend', LOCAL) != LOCAL or section.get('overlap') for section in sections)


class RunOutput:
    """Output of a pipeline. An existing folder is locked at once; a new one is created by ``open``.

    Args:
        cfg: The config of the run.
        folder: Existing run folder, or a function that creates one; by default, a new one in the working directory.
        resume: The checkpoint that the run resumes from, which may be open already.

    Raises:
        ExperimentLockedError: If another process is writing to the folder.
        ExperimentDirError: If nothing can be written.
        ConfigError: If a logger cannot work here.
        CheckpointError: If the checkpoint does not exist, or the run was changed after it had been opened.
    """

    folder: Path
    """The run folder."""
    writer: MetricWriter
    """Folder of the metrics."""

    def __init__(
        self,
        cfg: ExperimentConfig,
        folder: Path | Callable[[], Path] | None,
        resume: Path | OpenCheckpoint | None,
    ) -> None:
        self._cfg, self._given = cfg, folder
        self._closers: list[Callable[[], None]] = []
        # of a run that nobody closed
        weakref.finalize(self, _close, os.getpid(), self._closers).atexit = False
        check_loggers(cfg.loggers)
        if isinstance(folder, Path):
            self._closers.append(run_folder.lock(folder))
        else:
            run_folder.check_writable(Path.cwd())
        self.saved = None if resume is None else self._opened(resume)
        """The open checkpoint that the run resumes from."""

    def _opened(self, resume: Path | OpenCheckpoint) -> OpenCheckpoint:
        try:
            return open_checkpoint(resume)
        except BaseException:
            self.close()
            raise

    def open(self, position: Mapping[str, Any] | None) -> None:
        """Creates the folder if it does not exist, cleans it up, and opens the logs.

        Args:
            position: Position in the metrics at which a resumed run continues.
        """
        self.folder = self._take()
        clean_leftovers(self.folder / CKPT)
        if self.saved is not None and not self._goes_on and self.saved.path.parent.name == CKPT:
            copy_records(self.saved.path.parent.parent, self.folder)
        self._log = run_folder.RunLog(self.folder)
        self._closers.append(self._log.close)
        self.take_log()
        for note in () if self.saved is None else self.saved.notes:
            logger.warning('%s', note)
        self.writer = MetricWriter(
            self.folder,
            self._cfg.tag_style,
            position,
            self._cfg.loggers,
            config.config_data(*config.split_config(self._cfg)),
        )
        self._closers.append(self.writer.close)
        if not self._goes_on:
            self._write_config()

    def take_log(self) -> None:
        """Directs this thread's log records to this run's log only."""
        self._log.take_thread()

    def begin(self, progress: Progress) -> None:
        """Records the options that a resumed run has changed, in the log and the metrics, and rewrites its config.

        Args:
            progress: Counters of the run.
        """
        if self.saved is not None and 'config' in self.saved.manifest:
            changes = config.changes_of(self.saved.manifest['config'], self._cfg)
            for change in changes:
                logger.info('resumed at %s env steps with %s', f'{progress.envstep:,}', change)
            if changes:
                numbers = {f'{CHANGED}{c.key}': c.after for c in changes if type(c.after) in (int, float)}
                text = '; '.join(map(str, changes))
                self.writer.write(numbers, progress.envstep, train_iter=progress.train_iter, changed=text)
        if self._goes_on:
            self._write_config()

    @property
    def _goes_on(self) -> bool:
        """Whether the folder belongs to the resumed run."""
        return self.saved is not None and _is_of(self.saved, self.folder)

    def _take(self) -> Path:
        if isinstance(self._given, Path):
            if self.saved is None:
                begin_again(self._given)
            return self._given
        make, cfg = self._given, self._cfg
        folder = make() if make is not None else run_folder.new_folder(cfg.exp_name, cfg.seed)
        self._closers.append(run_folder.lock(folder))
        return folder

    def _write_config(self) -> None:
        config.write_total_config(self.folder, *config.split_config(self._cfg))

    def close(self) -> None:
        """Closes the logs and unlocks the folder; may be called twice."""
        _close(os.getpid(), self._closers)


def _close(process: int, closers: list[Callable[[], None]]) -> None:
    """Calls the closers of a process, last first; a fork of the process leaves them to its parent."""
    while closers and process == os.getpid():
        closers.pop()()


def _is_of(saved: OpenCheckpoint, folder: Path) -> bool:
    """Whether a checkpoint belongs to a run folder."""
    return saved.path.parent.parent.resolve() == folder.resolve()


def write_counts(
    writer: MetricWriter,
    progress: Progress,
    replay_buffer: IBuffer | None,
    settings: Mapping[str, Any],
    times: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Writes the metrics that no single worker knows.

    Args:
        writer: The metrics of the run.
        progress: Counters of the run.
        replay_buffer: The replay buffer, if there is one.
        settings: Arguments of the collector's policy, such as ``eps``.
        times: Metrics of a ``TimeSplit``.
    """
    seconds = max(progress.wall_time, 1e-9)
    values: dict[str, Any] = {'time/elapsed': seconds, 'time/fps': progress.envstep / seconds, **times}
    if replay_buffer is not None:
        values |= replay_buffer.metrics()
    if 'eps' in settings:
        values['rollout/exploration_rate'] = settings['eps']
    write_record(writer, values, progress.envstep, train_iter=progress.train_iter)
