"""NotifyHook: runs a command when a run ends."""

from __future__ import annotations

import logging
import os
import subprocess
from typing import Any

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import REQUIRED, Field
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.worker.hooks.run_hook import RunHook
from rlframe.worker.hooks.run_view import RunView

logger = logging.getLogger('rlframe.hooks')
PREFIX = 'RLFRAME_RUN_'
"""Start of the names of the environment variables that the command gets."""
MAX_REASON = 2000
"""Characters of an error that the command gets."""


class NotifyConfig(ResolvedConfig):
    """Options of ``NotifyHook``."""

    command: list[str]
    timeout: float


def _check_words(words: Any) -> str:
    if words and all(isinstance(word, str) and '\0' not in word for word in words):
        return ''
    return "a program and its arguments, such as ['notify-send', 'training ended']"


@HOOK_REGISTRY.register('notify')
class NotifyHook(RunHook):
    """Runs a command when a run ends or fails, without a shell.

    The command gets the outcome in environment variables: ``RLFRAME_RUN_OUTCOME`` (``solved``, ``done``, ``stopped``,
    ``interrupted``, ``failed``), ``_REASON`` (why a hook ended it, or the error), ``_FOLDER``, ``_SCORE``, ``_BEST``,
    ``_ENVSTEP``, ``_TRAIN_ITER`` and ``_SECONDS``. If the command fails, a warning is logged.
    """

    _cfg: NotifyConfig
    config = dict(
        command=Field(
            REQUIRED,
            type=list,
            doc='program and arguments, a list of words; no shell reads them',
            check=_check_words,
            may_change=True,
            reaches='process',
        ),
        timeout=Field(
            30.0,
            range='(0, inf)',
            unit='seconds',
            doc='that the command has, before it is killed',
            may_change=True,
        ),
    )
    reaches = 'process'

    def after_run(self, run: RunView) -> None:
        self._run(run, run.stop_reason)

    def on_exception(self, run: RunView) -> None:
        self._run(run, f'{type(run.error).__name__}: {run.error}')

    def _run(self, run: RunView, reason: str) -> None:
        progress = run.progress
        facts = {
            'OUTCOME': run.outcome,
            'REASON': run.secrets.scrub(reason).replace('\0', ' ')[:MAX_REASON],
            'FOLDER': run.folder.absolute(),
            'SCORE': run.evaluator.latest,
            'BEST': run.evaluator.best,
            'ENVSTEP': progress.envstep,
            'TRAIN_ITER': progress.train_iter,
            'SECONDS': f'{progress.wall_time:.1f}',
        }
        env = {**os.environ, **{PREFIX + name: str(value) for name, value in facts.items()}}
        try:
            subprocess.run(
                self._cfg.command, env=env, stdin=subprocess.DEVNULL, timeout=self._cfg.timeout, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            logger.warning('hooks.%s: %s', self.name, run.secrets.scrub(str(error)))
