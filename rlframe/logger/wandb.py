"""WandbLogger: sends records to Weights & Biases."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from rlframe.errors import ConfigError
from rlframe.logger.logger import LoggedRun, Record
from rlframe.logger.remote_logger import RemoteLogger
from rlframe.registry import LOGGER_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule
from rlframe.utils.resolved_config import ResolvedConfig

wandb = LazyModule('wandb')
logger = logging.getLogger('rlframe.logger')
MODES = ('online', 'offline', 'disabled')


class WandbConfig(ResolvedConfig):
    """Options of ``WandbLogger``."""

    project: str
    entity: str | None
    name: str | None
    group: str | None
    tags: list[Any]
    mode: str | None


@LOGGER_REGISTRY.register('wandb')
class WandbLogger(RemoteLogger):
    """Sends records, histograms, videos and the config to Weights & Biases; needs rlframe[wandb].

    The environment variables of W&B hold: ``WANDB_MODE=offline`` writes to the run folder only, for ``wandb sync``.
    """

    package = 'wandb'
    _cfg: WandbConfig
    config = dict(
        project=Field('rlframe', doc='project of the run'),
        entity=Field(None, type=str, doc='user or team; None: your own default'),
        name=Field(None, type=str, doc='name of the run; None: that of the run folder'),
        group=Field(None, type=str, doc='group of the run, for example all seeds of a config'),
        tags=Field([], doc='tags of the run'),
        mode=Field(
            None,
            type=str,
            choices=(*MODES, None),
            doc='online, offline or disabled; None: as WANDB_MODE says, otherwise online',
        ),
    )

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
            ended, self._wandb_run = self._wandb_run, None
            ended.finish()
