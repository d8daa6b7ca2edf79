"""Displays of parallel mode and of several seeds while they train, and the lines at the end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rlframe.display.live import Display, LiveView
from rlframe.display.text import count_of, program, short_path
from rlframe.scores import Interval, clock_text, interval_of, number_text

if TYPE_CHECKING:
    from rlframe.app.seeds import SeedRun

SEED_COLUMNS = ('seed', 'state', 'env steps', 'steps/s', 'return', 'eval', 'time')


class ParallelDisplay(Display):
    """Shows the progress of a run of parallel mode, with the number of its workers and the silent workers."""

    def _mean_return(self) -> float:
        return float(self._pipeline.episodes.window_mean())

    def _statuses(self) -> list[str]:
        coordinator, crew = self._pipeline.coordinator, self._pipeline.crew
        workers = coordinator.workers
        present = {role: workers.present(role) for role in ('learner', 'collector')}
        texts = [', '.join(count_of(present[role], role) for role in ('collector', 'learner'))]
        if not coordinator.system_shutdown_flag and (not present['collector'] or not present['learner']):
            texts.append('waiting for workers')
        if workers.lost:
            texts.append(f'{len(workers.lost)} lost')
        texts += [
            f'{name} silent {seconds:.0f} s'
            for name, seconds in workers.silences().items()
            if seconds > workers.deadline / 2
        ]
        if crew is not None and crew.restarts:
            texts.append(f'{crew.restarts} restarted')
        return texts

    def _loss(self) -> float | None:
        variables = self._pipeline.variables
        loss: float | None = variables.get('train/total_loss', variables.get('total_loss'))
        return loss


class SeedDisplay(LiveView):
    """Shows the progress of the runs."""

    _is_over = False

    def __init__(self) -> None:
        super().__init__()
        self._noted: set[int] = set()

    def show(self, runs: Sequence[SeedRun]) -> None:
        """Shows new notes, and the present state if it is time to."""
        for run in runs:
            if run.note and run.seed not in self._noted:
                self._noted.add(run.seed)
                self._console.print(Text(f'rlframe: seed {run.seed}: {run.note}'), soft_wrap=True)
        is_over = all(run.state not in ('waiting', 'running') for run in runs)
        if not self._is_over:
            self.show_picture(lambda width: picture(runs, width), is_over)
        self._is_over = is_over


def picture(runs: Sequence[SeedRun], width: int | None) -> RenderableType:
    """Returns a table with a row for each run, or one line where nothing can be redrawn (``width`` is None)."""
    if width is None:
        return Text(' | '.join(map(_in_words, runs)))
    table = Table(box=None, pad_edge=False, header_style='bold')
    for name in SEED_COLUMNS:
        table.add_column(name, justify='left' if name == 'state' else 'right', no_wrap=True)
    for run in runs:
        speed = f'{run.envstep / run.seconds:,.0f}' if run.seconds and run.envstep else ''
        spent = clock_text(run.seconds) if run.seconds else ''
        steps = f'{run.envstep:,}' if run.envstep else ''
        table.add_row(
            str(run.seed), run.state, steps, speed, _number(run.mean_return), _number(run.score), spent
        )
    return table


def _in_words(run: SeedRun) -> str:
    if run.state != 'running':
        return f'seed {run.seed}: {run.state}'
    score = f', eval {number_text(run.score)}' if math.isfinite(run.score) else ''
    return f'seed {run.seed}: {run.envstep:,} env steps{score}'


def last_lines(runs: Sequence[SeedRun], seconds: float) -> Iterator[str]:
    """Yields lines with the outcomes of the runs, their mean score and the next commands.

    Args:
        runs: The runs.
        seconds: Duration of all.
    """
    yield from map(_end_of, runs)
    complete = [run for run in runs if run.is_complete]
    scores = [run.score for run in complete if math.isfinite(run.score)]
    if scores:
        mean = math.fsum(scores) / len(scores)
        interval = interval_of(scores)
        ends = Interval(min(scores), max(scores))
        text = f", 95 % interval {interval} (Student's t)" if interval else ''
        text = f', {ends}' if interval == ends else text  # of few, which are no 95 %
        yield (
            f'mean of the last evaluations: {number_text(mean)} over {count_of(len(scores), "seed")}{text},'
            f' {clock_text(seconds)}'
        )
    if any(run.state in ('interrupted', 'waiting') for run in runs):
        yield 'resume: the same command with --resume auto'
    if len(complete) > 1:
        yield f'plot: {_command("plot", complete)}'
        yield f'compare: {_command("compare", complete)}'


def _end_of(run: SeedRun) -> str:
    if run.state == 'waiting':
        return f'seed {run.seed}: not started'
    score = f', last evaluation {number_text(run.score)}' if math.isfinite(run.score) else ''
    where = '' if run.folder is None else f'. Results: {short_path(run.folder)}'
    return f'seed {run.seed}: {run.state}{score}, {run.envstep:,} env steps{where}'


def _command(verb: str, runs: Sequence[SeedRun]) -> str:
    folders = ' '.join(shlex.quote(short_path(run.folder)) for run in runs if run.folder is not None)
    return f'{program()} {verb} {folders}'


def _number(value: float) -> str:
    return number_text(value) if math.isfinite(value) else ''
