"""What a training run shows: one live line on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import logging
import math
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

if TYPE_CHECKING:
    from rlframe.pipeline import SerialPipeline

LIVE_SECONDS, PLAIN_SECONDS = 0.2, 5.0
"""Seconds between two updates of the live line, and between two plain lines."""


class Display:
    """Shows the progress of a pipeline while it is entered as a context."""

    def __init__(self, pipeline: SerialPipeline) -> None:
        self._pipeline = pipeline
        self._console = Console(stderr=True)
        is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_live else None
        self._begin = self._last = monotonic()
        self._first_step = pipeline.progress.envstep
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
            self._live.update(Text(line, no_wrap=True, overflow='ellipsis'), refresh=True)

    def _line(self, seconds: float) -> str:
        pipeline = self._pipeline
        progress = pipeline.progress
        speed = (progress.envstep - self._first_step) / seconds
        parts = [f'env steps {progress.envstep:,}', f'{speed:,.0f}/s', f'updates {progress.train_iter:,}']
        for name, value in (
            ('return', pipeline.collector.mean_return()),
            ('eval', pipeline.evaluator.latest),
        ):
            if not math.isnan(value):
                parts.append(f'{name} {value:.1f}')
        if status := pipeline.collector.status():
            parts.append(status)
        loss = pipeline.learner.monitor.means().get('total_loss')
        if loss is not None:
            parts.append(f'loss {loss:.3g}')
        parts.append(_duration(seconds))
        left = None if self._pipeline.finished else self._seconds_left(seconds)
        if left is not None:
            parts.append(f'at most {_duration(left)} left')
        return ' | '.join(parts)

    def _seconds_left(self, seconds: float) -> float | None:
        """Returns the seconds until a budget is spent at the present speed, None where there is no budget."""
        progress, cfg = self._pipeline.progress, self._pipeline.cfg
        estimates = [
            (budget - done) * seconds / done
            for budget, done in (
                (cfg.max_env_step, progress.envstep),
                (cfg.max_train_iter, progress.train_iter),
            )
            if budget < 10**10 and done
        ]
        return min(estimates, default=None)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{rest:02}' if hours else f'{minutes}:{rest:02}'
