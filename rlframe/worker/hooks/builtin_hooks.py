"""The hooks of a run that come with rlframe: early stop, wall clock, gradient histograms."""

from __future__ import annotations

import math
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
            self._best = score
            self._worse = 0
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
        self._next = now + self._every.after(now)
        for name, parameter in run.policy.get_attribute('model').named_parameters():
            if parameter.grad is not None:
                run.log_histogram(f'gradient/{name}', parameter.grad.cpu().numpy())
            if self._cfg.weights:
                run.log_histogram(f'weight/{name}', parameter.detach().cpu().numpy())
