"""The progress of a training run in one line, redrawn where that is possible."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from rich.console import Console, RenderableType
from rich.logging import RichHandler
from rich.text import Text

from rlframe.display.line import Part, fitted, left_part, status_part, steps_part, time_part
from rlframe.display.screens import screen_of
from rlframe.run.budgets import BUDGETS, set_budgets
from rlframe.scores import number_text, short_count

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
        self._screen = screen_of(self._console)
        self._begin = monotonic()
        self._next = self._begin + self._screen.first
        self._first = dataclasses.replace(pipeline.progress)
        self._handler: logging.Handler = RichHandler(
            logging.WARNING, console=self._console, show_time=False, show_path=False, markup=False
        )

    def __enter__(self) -> Display:
        logging.getLogger('rlframe').addHandler(self._handler)
        self._screen.start()
        self.show()
        return self

    def __exit__(self, *exception: object) -> None:
        self.show(final=True)
        self._screen.stop()
        logging.getLogger('rlframe').removeHandler(self._handler)

    def show(self, final: bool = False) -> None:
        """Shows the present state if it is time to."""
        now = monotonic()
        if now < self._next and not final:
            return
        self._next = now + self._screen.period
        seconds = max(now - self._begin, 1e-9)
        self._screen.show(lambda width: self._picture(fitted(self._parts(seconds), width), width))

    def _picture(self, line: Text, width: int | None) -> RenderableType:
        """Returns the picture of the run in so many columns; None: in one line."""
        return line

    def _parts(self, seconds: float) -> Iterator[Part]:
        """Yields the facts of the line after so many seconds."""
        pipeline = self._pipeline
        progress = pipeline.progress
        speed = (progress.envstep - self._first.envstep) / seconds
        yield steps_part(progress.envstep)
        yield Part('speed', (f'{speed:,.0f}/s', ''), 'dim')
        yield Part(
            'updates', (f'updates {progress.train_iter:,}', f'updates {short_count(progress.train_iter)}', '')
        )
        mean_return = self._mean_return()
        if not math.isnan(mean_return):
            yield Part('return', (f'return {number_text(mean_return)}', ''), 'cyan')
        latest = pipeline.evaluator.latest
        if score := pipeline.evaluator.describe(latest):
            style = 'bold green' if pipeline.evaluator.reached(latest) else 'bold'
            yield Part('eval', (f'eval {score}', f'eval {score.partition(",")[0]}', ''), style)
        yield from (status_part(status) for status in self._statuses() if status)
        loss = self._loss()
        if loss is not None:
            yield Part('loss', (f'loss {number_text(loss)}', ''), 'dim')
        yield time_part(seconds)
        if not pipeline.finished and (budgets := set_budgets(pipeline.cfg)):
            yield left_part(self._seconds_left(seconds, budgets))

    def _mean_return(self) -> float:
        """Returns the mean return of the last episodes of the collectors; NaN if none ended."""
        return float(self._pipeline.collector.mean_return())

    def _statuses(self) -> list[str]:
        """Returns the statuses of the workers; empty texts are left out."""
        return [self._pipeline.collector.status(), self._pipeline.evaluator.status()]

    def _loss(self) -> float | None:
        """Returns the mean of the recent losses, or None."""
        loss: float | None = self._pipeline.learner.monitor.means().get('total_loss')
        return loss

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
