"""The display of a training run: one live line on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from time import monotonic
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from rlframe.pipeline.ending import BUDGETS, NO_BUDGET

LIVE_SECONDS, PLAIN_SECONDS = 0.2, 5.0
"""Seconds between two updates of the live line, and between two plain lines."""
MEASURED_SECONDS, LONGEST_SECONDS = 5.0, 100 * 86_400.0
"""Seconds of training before the remaining time is shown, and the longest remaining time that is shown."""


class Display:
    """Shows the progress of a run while it is entered as a context.

    Args:
        pipeline: The run, serial or parallel.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._console = Console(stderr=True)
        is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_live else None
        self._begin = self._last = monotonic()
        self._first = dataclasses.replace(pipeline.progress)
        self._handler: logging.Handler = RichHandler(
            logging.WARNING, console=self._console, show_time=False, show_path=False, markup=False
        )

    def __enter__(self) -> Display:
        logging.getLogger('rlframe').addHandler(self._handler)
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.show(final=True)
        if self._live is not None:
            self._live.stop()
        logging.getLogger('rlframe').removeHandler(self._handler)

    def show(self, final: bool = False) -> None:
        """Shows the present state if it is time to."""
        now = monotonic()
        if not final and now - self._last < (PLAIN_SECONDS if self._live is None else LIVE_SECONDS):
            return
        self._last = now
        line = self._line(max(now - self._begin, 1e-9))
        if self._live is None:
            self._console.print(line, highlight=False, soft_wrap=True)
        else:
            self._live.update(self._picture(line), refresh=True)

    def _picture(self, line: str) -> RenderableType:
        """Returns what a live display shows."""
        return Text(line, no_wrap=True, overflow='ellipsis')

    def _line(self, seconds: float) -> str:
        pipeline = self._pipeline
        progress = pipeline.progress
        speed = (progress.envstep - self._first.envstep) / seconds
        parts = [f'env steps {progress.envstep:,}', f'{speed:,.0f}/s', f'updates {progress.train_iter:,}']
        mean_return = self._mean_return()
        if not math.isnan(mean_return):
            parts.append(f'return {mean_return:.1f}')
        if score := pipeline.evaluator.describe(pipeline.evaluator.latest):
            parts.append(f'eval {score}')
        parts += [status for status in self._statuses() if status]
        loss = self._loss()
        if loss is not None:
            parts.append(f'loss {loss:.3g}')
        parts.append(_duration(seconds))
        if not pipeline.finished and (budgets := self._budgets()):
            left = self._seconds_left(seconds, budgets)
            parts.append(f'at most {"--:--" if left is None else _duration(left)} left')
        return ' | '.join(parts)

    def _mean_return(self) -> float:
        """Returns the mean return of the last episodes of the collectors; NaN if none ended."""
        return float(self._pipeline.collector.mean_return())

    def _statuses(self) -> list[str]:
        """Returns what workers say of themselves; empty texts are left out."""
        return [self._pipeline.collector.status(), self._pipeline.evaluator.status()]

    def _loss(self) -> float | None:
        """Returns the mean of the recent losses, or None."""
        loss: float | None = self._pipeline.learner.monitor.means().get('total_loss')
        return loss

    def _budgets(self) -> list[str]:
        """Returns the keys of the run's budgets."""
        return [key for key in BUDGETS if self._pipeline.cfg[key] < NO_BUDGET]

    def _seconds_left(self, seconds: float, budgets: Sequence[str]) -> float | None:
        """Estimates the seconds until a budget is spent, from the speed since the display started; None if unknown."""
        if seconds < MEASURED_SECONDS:
            return None
        estimates = []
        for key in budgets:
            counter = BUDGETS[key][0]
            count = getattr(self._pipeline.progress, counter)
            if done := count - getattr(self._first, counter):
                estimates.append((self._pipeline.cfg[key] - count) * seconds / done)
        left = min(estimates, default=math.inf)
        return left if left < LONGEST_SECONDS else None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{rest:02}' if hours else f'{minutes}:{rest:02}'
