"""RunOutput: the run folder of a pipeline, locked while open, with its logs and its config."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlframe import checkpoint, config
from rlframe.checkpoint import OpenCheckpoint
from rlframe.config.sections import ExperimentConfig
from rlframe.logger.metric_writer import MetricWriter
from rlframe.logger.options import check_loggers
from rlframe.pipeline.resume import begin_again
from rlframe.run import run_folder
from rlframe.run.metrics import CHANGED, copy_records, write_record
from rlframe.run.progress import Progress
from rlframe.safety.secrets import Secrets

if TYPE_CHECKING:
    from rlframe.worker import IBuffer

logger = logging.getLogger('rlframe.pipeline')


class RunOutput:
    """Output of a pipeline. An existing folder is locked at once; a new one is created by ``open``.

    Args:
        cfg: The config of the run.
        folder: Existing run folder, or a function that creates one; by default, a new one in the working directory.
        resume: The checkpoint that the run resumes from, which may be open already.
        secrets: Values that the run's files must not contain.

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
        secrets: Secrets | None = None,
    ) -> None:
        self._cfg, self._given = cfg, folder
        self._secrets = secrets or Secrets()
        self._closers: list[Callable[[], None]] = []
        check_loggers(cfg.loggers)
        if isinstance(folder, Path):
            self._closers = [run_folder.lock(folder)]
        else:
            run_folder.check_writable(Path.cwd())
        self.saved = None if resume is None else self._opened(resume)
        """The open checkpoint that the run resumes from."""

    def _opened(self, resume: Path | OpenCheckpoint) -> OpenCheckpoint:
        try:
            saved = checkpoint.open_checkpoint(resume)
            if isinstance(self._given, Path) and _is_of(saved, self._given):
                # The folder was not locked between verification and now. The verified bytes are used in any case; this
                # checks that they are still the newest state of the run.
                saved.check_current()
        except BaseException:
            self.close()
            raise
        return saved

    def open(self, position: Mapping[str, Any] | None) -> None:
        """Creates the folder if it does not exist, cleans it up, and opens the logs.

        Args:
            position: Position in the metrics at which a resumed run continues.
        """
        self.folder = self._take()
        checkpoint.clean_leftovers(self.folder / 'ckpt')
        if self.saved is not None and not self._goes_on and self.saved.path.parent.name == 'ckpt':
            copy_records(self.saved.path.parent.parent, self.folder)
        handler = run_folder.log_to_file(self.folder, self._secrets)
        self.writer = MetricWriter(
            self.folder,
            self._cfg.tag_style,
            position,
            self._secrets,
            self._cfg.loggers,
            config.config_data(*config.split_config(self._cfg)),
        )
        self._closers += [
            lambda: logging.getLogger('rlframe').removeHandler(handler),
            handler.close,
            self.writer.close,
        ]
        if not self._goes_on:
            self._write_config()

    def begin(self, progress: Progress) -> None:
        """Records what a resumed run has changed, in the log and the metrics, and rewrites its config.

        Args:
            progress: Counters of the run.
        """
        if self.saved is not None and 'config' in self.saved.manifest:
            changes = config.changes_of(self.saved.manifest['config'], self._cfg)
            for change in changes:
                logger.info('resumed at %s env steps with %s', f'{progress.envstep:,}', change)
            if changes:
                numbers = {f'{CHANGED}{c.key}': c.after for c in changes if type(c.after) in (int, float)}
                told = '; '.join(map(str, changes))
                self.writer.write(numbers, progress.envstep, train_iter=progress.train_iter, changed=told)
        if self._goes_on:
            self._write_config()

    @property
    def _goes_on(self) -> bool:
        """Whether the folder is that of the resumed run."""
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
        closers, self._closers = self._closers, []
        for close in reversed(closers):
            close()


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
        values['buffer/count'] = replay_buffer.count()
    if 'eps' in settings:
        values['rollout/exploration_rate'] = settings['eps']
    write_record(writer, values, progress.envstep, train_iter=progress.train_iter)
