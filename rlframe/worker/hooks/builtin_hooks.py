"""The hooks of a run that come with rlframe: early stop, wall clock, notifications, gradient histograms."""

from __future__ import annotations

import logging
import math
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.every import Every, interval
from rlframe.utils.field import REQUIRED, Section, option
from rlframe.utils.schema import COUNT, NUMBER, maybe
from rlframe.worker.hooks.run_hook import RunHook, RunView


class EarlyStopConfig(Section):
    """Options of ``EarlyStopHook``."""

    patience: int = option(
        10,
        range='[1, inf)',
        unit='evaluations',
        doc='number of evaluations without a better score after which training ends',
        may_change=True,
    )
    min_delta: float = option(
        0.0,
        range='[0, inf)',
        unit='of the score',
        doc='margin by which a score must exceed the best one to count as better',
        may_change=True,
    )


@HOOK_REGISTRY.register('early_stop')
class EarlyStopHook(RunHook):
    """Ends training when the score has not improved for ``patience`` evaluations."""

    _cfg: EarlyStopConfig
    saved = {'best': maybe(NUMBER), 'worse': COUNT}

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._best: float | None = None
        self._worse = 0  # evaluations since the best

    def before_run(self, run: RunView) -> None:
        self._judge(run)

    def after_eval(self, run: RunView) -> None:
        if run.is_extra:
            return
        score = float(run.evaluation.score)
        is_first = self._best is None and not math.isnan(score)
        if is_first or (self._best is not None and score > self._best + self._cfg.min_delta):
            self._best, self._worse = score, 0
        else:
            self._worse += 1
        self._judge(run)

    def _judge(self, run: RunView) -> None:
        if self._worse >= self._cfg.patience:
            run.stop(f'no better evaluation in {self._worse} (hooks.{self.name}.patience)')


class WallClockConfig(Section):
    """Options of ``WallClockHook``."""

    seconds: float = option(
        REQUIRED,
        range='(0, inf)',
        unit='seconds',
        doc='length of training, evaluations included, after which it ends',
        may_change=True,
    )


@HOOK_REGISTRY.register('wall_clock')
class WallClockHook(RunHook):
    """Ends training when a budget of wall-clock time is spent, counted over all resumes."""

    _cfg: WallClockConfig

    def before_run(self, run: RunView) -> None:
        self.after_round(run)

    def after_round(self, run: RunView) -> None:
        seconds = run.progress.wall_time
        if seconds >= self._cfg.seconds:
            run.stop(f'the budget of {self._cfg.seconds:g} s is spent (hooks.{self.name}.seconds)')


logger = logging.getLogger('rlframe.hooks')
PREFIX = 'RLFRAME_RUN_'
"""Start of the names of the environment variables that the command gets."""
MAX_REASON = 2000
"""Characters of an error that the command gets."""


def _check_words(words: Any) -> str:
    if words and all(isinstance(word, str) and '\0' not in word for word in words):
        return ''
    return "a program and its arguments, such as ['notify-send', 'training ended']"


class NotifyConfig(Section):
    """Options of ``NotifyHook``."""

    command: list[str] = option(
        REQUIRED,
        doc='program and arguments, a list of words; no shell reads them',
        check=_check_words,
        may_change=True,
        reaches='process',
    )
    timeout: float = option(
        30.0,
        range='(0, inf)',
        unit='seconds',
        doc='longest time for the command; then it is killed',
        may_change=True,
    )


@HOOK_REGISTRY.register('notify')
class NotifyHook(RunHook):
    """Runs a command when a run ends or fails, without a shell.

    The command gets the outcome in environment variables: ``RLFRAME_RUN_OUTCOME`` (``solved``, ``done``, ``stopped``,
    ``interrupted``, ``failed``), ``_REASON`` (why a hook ended it, or the error), ``_FOLDER``, ``_SCORE``, ``_BEST``,
    ``_ENVSTEP``, ``_TRAIN_ITER`` and ``_SECONDS``. If the command fails, a warning is logged.
    """

    _cfg: NotifyConfig
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


class GradientHistogramConfig(Section):
    """Options of ``GradientHistogramHook``."""

    every: int | str = interval(1000, 'interval between two histograms')
    weights: bool = option(False, doc='whether to log the weights, too, as weight/LAYER', may_change=True)


@HOOK_REGISTRY.register('gradient_histogram')
class GradientHistogramHook(RunHook):
    """Logs a histogram of the last gradient of each layer, after clipping, as ``gradient/LAYER``."""

    _cfg: GradientHistogramConfig
    in_parallel = False
    saved = {'next': COUNT}

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._every = Every.of(self._cfg.every)
        self._next = 1  # train iterations, or env steps, from which histograms are due

    def after_round(self, run: RunView) -> None:
        now = self._every.now(run.progress.train_iter, run.progress.envstep)
        if now < self._next:
            return
        self._next = now + self._every.length
        for name, parameter in run.policy.get_attribute('model').named_parameters():
            if parameter.grad is not None:
                run.log_histogram(f'gradient/{name}', parameter.grad.cpu().numpy())
            if self._cfg.weights:
                run.log_histogram(f'weight/{name}', parameter.detach().cpu().numpy())
