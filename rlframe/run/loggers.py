"""Loggers for TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, time, time_ns
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.logger import LoggedRun, Logger, Record, RemoteLogger
from rlframe.run.metrics import BOARD
from rlframe.utils.field import Section, option
from rlframe.utils.flat import flat
from rlframe.utils.lazy import LazyModule

event_file_writer = LazyModule('tensorboardX.event_file_writer')
event_pb2 = LazyModule('tensorboardX.proto.event_pb2')
summary = LazyModule('tensorboardX.summary')
wandb = LazyModule('wandb')
mlflow = LazyModule('mlflow')
entities = LazyModule('mlflow.entities')
exceptions = LazyModule('mlflow.exceptions')

logger = logging.getLogger('rlframe.logger')

MODES = ('online', 'offline', 'disabled')
"""Modes of Weights & Biases."""

BATCH, SECONDS = 500, 5.0
"""Numbers, or seconds since the last batch, after which numbers are sent to MLflow; a batch may have 1,000."""
PARAMS = 100
"""Parameters in one request, MLflow's limit."""
LONGEST_NAME = 250
"""Characters of a name in MLflow."""
LONGEST = 500
"""Characters of a parameter's value; MLflow's oldest limit."""
_FORBIDDEN = re.compile(r'[^\w\-. :/]')


@LOGGER_REGISTRY.register('tensorboard')
class TensorBoardLogger(Logger):
    """Writes event files to the folder tensorboard of the run, for the command tensorboard --logdir RUN."""

    follows_tag_style = True
    _writer: Any = None

    def write(self, record: Record) -> None:
        for tag, value in record.values.items():
            self._add(tag, summary.scalar(tag, value), record.envstep)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        self._add(tag, summary.histogram(tag, values, 'auto'), step)

    def add_video(self, tag: str, video: Any, step: int, fps: int) -> None:
        self._add(tag, summary.video(tag, video, fps), step)

    def _add(self, tag: str, content: Any, step: int) -> None:
        """Writes to the event file, which is created at its first use, under the tag itself: tensorboardX changes some."""
        if self._writer is None:
            folder = self._run.folder / BOARD
            folder.mkdir(exist_ok=True)
            self._writer = event_file_writer.EventsWriter(str(folder / 'events'), f'.{time_ns()}')
        content.value[0].tag = tag
        self._writer.write_event(event_pb2.Event(wall_time=time(), step=step, summary=content))

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class WandbConfig(Section):
    """Options of ``WandbLogger``."""

    project: str = option('rlframe', doc='project of the run')
    entity: str | None = option(None, doc='user or team; None: your own default')
    name: str | None = option(None, doc='name of the run; None: the name of the run folder')
    group: str | None = option(None, doc='group of the run, for example all seeds of a config')
    tags: list[Any] = option([], doc='tags of the run')
    mode: str | None = option(
        None,
        choices=(*MODES, None),
        doc='online, offline or disabled; None: as WANDB_MODE says, otherwise online',
    )


@LOGGER_REGISTRY.register('wandb')
class WandbLogger(RemoteLogger):
    """Sends records, histograms, videos and the config to Weights & Biases; needs rlframe[wandb].

    The environment variables of W&B hold: ``WANDB_MODE=offline`` writes to the run folder only, for ``wandb sync``.
    """

    package = 'wandb'
    _cfg: WandbConfig

    @classmethod
    def check(cls, cfg: Mapping[str, Any]) -> None:
        super().check(cfg)
        mode = cfg.get('mode') or os.environ.get('WANDB_MODE') or 'online'
        if mode == 'online' and not wandb.login(prompt=False):
            raise ConfigError(
                'no W&B account is known here',
                where='loggers',
                remedy='Run `wandb login`, or set WANDB_MODE=offline and upload later with `wandb sync`.',
            )

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        before = self._saved_id()
        mode = self._cfg.mode or os.environ.get('WANDB_MODE') or 'online'
        self._wandb_run: Any = wandb.init(
            project=self._cfg.project,
            entity=self._cfg.entity,
            name=self._cfg.name or run.folder.resolve().name,
            group=self._cfg.group,
            tags=self._cfg.tags,
            mode=mode,
            id=before or None,
            resume='allow' if before and mode == 'online' else None,
            dir=str(run.folder),
            config=dict(run.config),
            reinit='create_new',  # several pipelines of one process have a run each
            settings=wandb.Settings(console='off', silent=True),
        )
        self._wandb_run.define_metric('envstep')
        self._wandb_run.define_metric('*', step_metric='envstep')
        url = self._wandb_run.url or '' if mode == 'online' else ''
        self._save_id(self._wandb_run.id, url)
        if url:
            logger.info('W&B: %s', url)

    def _send(self, record: Record) -> None:
        self._wandb_run.log({'envstep': record.envstep, **record.facts, **record.values})

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        self._wandb_run.log({'envstep': step, tag: wandb.Histogram(values)})

    def add_video(self, tag: str, video: Any, step: int, fps: int) -> None:
        self._wandb_run.log({'envstep': step, tag: wandb.Video(video, fps=fps, format='mp4')})

    def close(self) -> None:
        if self._wandb_run is not None:
            ended = self._wandb_run
            self._wandb_run = None
            ended.finish()


class MlflowConfig(Section):
    """Options of ``MlflowLogger``."""

    tracking_uri: str | None = option(
        None, doc='folder, database or server; None: as MLFLOW_TRACKING_URI says, or MLflow'
    )
    experiment: str = option('rlframe', doc='experiment of the run, created if it does not exist')
    name: str | None = option(None, doc='name of the run; None: the name of the run folder')


@LOGGER_REGISTRY.register('mlflow')
class MlflowLogger(RemoteLogger):
    """Sends records and the options of the config to MLflow, in batches; needs rlframe[mlflow]."""

    package = 'mlflow'
    _cfg: MlflowConfig

    @classmethod
    def check(cls, cfg: Mapping[str, Any]) -> None:
        super().check(cfg)
        try:
            _client(cfg.get('tracking_uri'))
        except exceptions.MlflowException as error:
            why = ' '.join(str(error).split())
            raise ConfigError(f'MLflow cannot use its tracking_uri: {why}', where='loggers') from error

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self._client: Any = _client(self._cfg.tracking_uri)
        self._waiting: list[Any] = []
        self._sent_at = monotonic()
        self._id = self._saved_id()
        if self._id:
            self._client.update_run(self._id, status='RUNNING')
            return
        name = self._cfg.name or run.folder.resolve().name
        self._id = self._client.create_run(self._experiment(), run_name=name).info.run_id
        self._save_id(self._id)
        params = [
            entities.Param(_allowed(key.removeprefix('main_config.')), str(value)[:LONGEST])
            for key, value in flat(run.config).items()
        ]
        for batch in _batches(params, PARAMS):
            self._client.log_batch(self._id, params=batch)

    def _experiment(self) -> str:
        """Returns the id of the experiment."""
        found = self._client.get_experiment_by_name(self._cfg.experiment)
        return str(found.experiment_id if found else self._client.create_experiment(self._cfg.experiment))

    def _send(self, record: Record) -> None:
        now = int(record.time * 1000)
        self._waiting += [
            entities.Metric(_allowed(tag), value, now, record.envstep) for tag, value in record.values.items()
        ]
        if len(self._waiting) >= BATCH or monotonic() - self._sent_at > SECONDS:
            self.flush()

    def flush(self) -> None:
        self._sent_at = monotonic()
        waiting = self._waiting
        self._waiting = []
        for batch in _batches(waiting, BATCH):
            self._client.log_batch(self._id, metrics=batch)

    def close(self) -> None:
        if self._id:
            self.flush()
            ended = self._id
            self._id = ''
            self._client.set_terminated(ended)


def _client(uri: str | None) -> Any:
    return mlflow.MlflowClient(tracking_uri=uri)


def _allowed(name: str) -> str:
    """Returns a name that MLflow allows: a changed one ends in a hash of the whole name, so that no two become one."""
    allowed = _FORBIDDEN.sub('_', name)[:LONGEST_NAME]
    if posixpath.normpath(allowed) != allowed or allowed.startswith(('/', '..')) or allowed == '.':
        allowed = re.sub(r'/|^\.*', '_', allowed)
    if allowed == name:
        return name
    return f'{allowed[: LONGEST_NAME - 7]}_{hashlib.sha256(name.encode()).hexdigest()[:6]}'


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
