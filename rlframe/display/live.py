"""The progress of a training run in one line, redrawn where that is possible."""

from __future__ import annotations

import dataclasses
import io
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.logging import RichHandler
from rich.text import Text

from rlframe.display.text import short_path, steps_unit
from rlframe.run.progress import BUDGETS, evaluation_of, set_budgets
from rlframe.run.read_checkpoint import OpenCheckpoint
from rlframe.scores import clock_text, number_text

Fact = tuple[str, str]
"""A fact in words, and its colour, as rich names it."""
Picture = Callable[[int | None], RenderableType]
"""Returns what to show on a screen of this many columns; None: one line of any length."""
NOTEBOOK_COLUMNS = 100
"""Columns of the output of a notebook's cell."""
MEASURED_SECONDS = 5.0
"""Seconds of training before the remaining time is shown."""
LONGEST_SECONDS = 100 * 86_400.0
"""Longest remaining time that is shown, in seconds."""
LONG_STEPS = 1000
"""Env steps without the end of an episode, after which the line says why the return stands still."""


def start_lines(pipeline: Any) -> str:
    """Returns two lines: policy, env, seed and goal, then the budgets and the run folder.

    Args:
        pipeline: The run, serial or parallel.
    """
    goal = pipeline.evaluator.goal
    verb = 'averages' if pipeline.evaluator.scores_returns else 'reaches'
    until = f'until an evaluation {verb} {goal}' if goal else 'until a budget is spent'
    if pipeline.past_goal:
        until = f'until a budget is spent (the goal of {goal} was reached)'
    cfg = pipeline.cfg
    budgets = ' and '.join(f'{cfg[key]:,} {BUDGETS[key][1]}' for key in set_budgets(cfg))
    limit = f'at most {budgets}; ' if budgets else ''
    folder = short_path(pipeline.folder)
    return f'{pipeline.title}, seed {cfg.seed}, {until}\n{limit}results and log.txt in {folder}'


def resume_lines(pipeline: Any, saved: OpenCheckpoint) -> str:
    """Returns a line with the point from which a run is resumed, and one for each reason why it is not exact from there.

    Args:
        pipeline: The run, serial or parallel.
        saved: The checkpoint.
    """
    progress = pipeline.progress
    exact = '' if pipeline.exact else ' (not exact)'
    point = f'{progress.envstep:,} env steps, {progress.train_iter:,} updates'
    before = saved.manifest.get('inexact') or ()
    reasons = [reason for reason in pipeline.checkpoints.inexact if reason not in before]
    return '\n'.join([f'resumes{exact} from {short_path(saved.path)}: {point}', *reasons])


def last_lines(pipeline: Any, seconds: float, interrupted: bool) -> str:
    """Returns two lines: outcome and score of the run, then its length and its folder.

    Args:
        pipeline: The run, serial or parallel.
        seconds: Duration.
        interrupted: Whether it was stopped before its end.
    """
    progress, evaluator = pipeline.progress, pipeline.evaluator
    score = evaluator.describe(evaluator.best)
    goal = evaluator.goal
    state = 'not solved' if goal else 'done'
    state = 'solved' if pipeline.solved else state
    state = 'interrupted and saved' if interrupted else state
    if pipeline.hooks.stop_reason and not pipeline.solved:
        state = f'stopped: {pipeline.hooks.stop_reason}\nsaved'
    best = f'best evaluation {score}' if score else 'never evaluated'
    goal = f' (goal {goal})' if goal else ''
    took = f'{seconds:.1f} s' if seconds < 60 else clock_text(seconds)
    return (
        f'{state}: {best}{goal}{_interval(pipeline)}\n'
        f'{progress.envstep:,} {steps_unit(pipeline.cfg)}, {progress.train_iter:,} updates, {took}. Results: {short_path(pipeline.folder)}'
    )


def _interval(pipeline: Any) -> str:
    """Returns the 95 % interval of the best evaluation; empty if it has none."""
    best = pipeline.evaluator.best
    found = evaluation_of(pipeline.folder, best) if isinstance(best, float) else None
    if found is None or found.interval is None:
        return ''
    return f', 95 % interval {found.interval} over {found.episodes} episodes'


def joined(parts: Iterable[Fact]) -> Text:
    """Returns the parts in one line, which a narrow terminal cuts off at its end."""
    shown = [Text(text, style) for text, style in parts]
    line = Text(' | ', 'dim').join(shown)
    line.no_wrap, line.overflow = True, 'ellipsis'
    return line


def redraws(console: Console) -> bool:
    """Whether a console can replace a line; colours asked for on a pipe do not make it a terminal."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal


class LiveView:
    """Shows a picture that changes, from time to time while it is entered as a context.

    On a terminal it is redrawn at the bottom, in a notebook it is one output of the cell, which stays in the saved
    notebook; elsewhere, lines are written one below the other.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._output: Any = None  # of the notebook's cell
        first, self._period = 0.5, 5.0
        if self._console.is_jupyter:
            first, self._period = 0.0, 0.5
        elif redraws(self._console):
            self._live = Live(console=self._console, auto_refresh=False)
            first, self._period = 0.0, 0.2
        self._begin = monotonic()
        self._next = self._begin + first

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_picture(self, picture: Picture, final: bool) -> None:
        """Shows the present state if it is time to, or if it is the last one."""
        now = monotonic()
        if now < self._next and not final:
            return
        self._next = now + self._period
        if self._console.is_jupyter:
            self._show_in_notebook(picture(NOTEBOOK_COLUMNS))
        elif self._live is not None:
            self._live.update(picture(self._console.width), refresh=True)
        else:
            self._console.print(picture(None), highlight=False, soft_wrap=True)

    def _show_in_notebook(self, drawn: RenderableType) -> None:
        from IPython.display import Pretty, display

        text = io.StringIO()
        console = Console(file=text, width=NOTEBOOK_COLUMNS, force_jupyter=False, color_system=None)
        console.print(drawn, highlight=False)
        shown = Pretty(text.getvalue().rstrip())  # type: ignore[no-untyped-call]  # IPython's functions have no annotations
        if self._output is None:
            self._output = display(shown, display_id=True)  # type: ignore[no-untyped-call]  # nor has this one
        else:
            self._output.update(shown)


class Display(LiveView):
    """Shows the progress of a run.

    Args:
        pipeline: The run, serial or parallel.
    """

    def __init__(self, pipeline: Any) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._first = self._ended = dataclasses.replace(pipeline.progress)
        self._handler: logging.Handler = RichHandler(
            logging.WARNING, console=self._console, show_time=False, show_path=False, markup=False
        )

    def __enter__(self) -> Self:
        logging.getLogger('rlframe').addHandler(self._handler)
        super().__enter__()
        self.show()
        return self

    def __exit__(self, *exception: object) -> None:
        self.show(final=True)
        super().__exit__(*exception)
        logging.getLogger('rlframe').removeHandler(self._handler)

    def show(self, final: bool = False) -> None:
        """Shows the present state if it is time to."""
        if self._pipeline.progress.episodes != self._ended.episodes:
            self._ended = dataclasses.replace(self._pipeline.progress)
        self.show_picture(lambda _: joined(self._facts(max(monotonic() - self._begin, 1e-9))), final)

    def _facts(self, seconds: float) -> Iterator[Fact]:
        """Yields the facts of the line, the most important first; ``seconds`` is the time since the start."""
        pipeline = self._pipeline
        progress = pipeline.progress
        yield clock_text(seconds), ''
        if not pipeline.finished and (budgets := set_budgets(pipeline.cfg)):
            left = self._seconds_left(seconds, budgets)
            yield f'at most {"--:--" if left is None else clock_text(left)} left', ''
        unit = steps_unit(pipeline.cfg)
        yield f'{unit} {progress.envstep:,}', ''
        mean_return = self._mean_return()
        since = progress.envstep - self._ended.envstep
        if not math.isnan(mean_return):
            still = f' (no episode ended in {since:,} env steps)' if since >= LONG_STEPS else ''
            yield f'return {number_text(mean_return)}{still}', 'cyan'
        elif since and unit == 'env steps':
            yield 'no episode has ended yet', 'cyan'
        latest = pipeline.evaluator.latest
        if score := pipeline.evaluator.describe(latest):
            yield f'eval {score}', 'bold green' if pipeline.evaluator.reached(latest) else 'bold'
        yield from ((status, 'yellow') for status in self._statuses() if status)
        yield f'{(progress.envstep - self._first.envstep) / seconds:,.0f}/s', 'dim'
        yield f'updates {progress.train_iter:,}', ''
        loss = self._loss()
        if loss is not None:
            yield f'loss {number_text(loss)}', 'dim'

    def _mean_return(self) -> float:
        """Returns the mean return of the last episodes of the collectors; NaN if none ended."""
        return float(self._pipeline.collector.mean_return())

    def _statuses(self) -> list[str]:
        """Returns the statuses of the workers; empty texts are left out."""
        pipeline = self._pipeline
        return [pipeline.curriculum.status(), pipeline.collector.status(), pipeline.evaluator.status()]

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
