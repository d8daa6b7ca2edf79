"""Tables of the workers of a run, and of several seeds, while they train, and the lines at the end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlframe.pipeline.live import Display, screen_of
from rlframe.pipeline.saying import count_of, program, short_path
from rlframe.scores import clock_text, interval_of, number_text

if TYPE_CHECKING:
    from rlframe.app.seeds import SeedRun

WORKER_COLUMNS = ('worker', 'state', 'steps', 'steps/s', 'updates', 'weights', 'behind', 'loss')
STATES = {'collect_at_random': 'random'}
"""Shorter words for states."""


class ParallelDisplay(Display):
    """Shows the state and the speed of each worker, its weights, and their lag behind the newest, in updates."""

    def __init__(self, pipeline: Any) -> None:
        super().__init__(pipeline)
        self._joined: dict[str, tuple[float, int]] = {}  # when a worker was first seen, and its env steps

    def _picture(self, line: Text, width: int | None) -> RenderableType:
        if width is None:
            return line
        table = Table(box=None, pad_edge=False, header_style='bold')
        for name in WORKER_COLUMNS:
            table.add_column(name, justify='left' if name in WORKER_COLUMNS[:2] else 'right', no_wrap=True)
        for row in self.rows():
            table.add_row(*row)
        return Group(table, line)

    def rows(self) -> list[list[str]]:
        """Returns the table's row of every present worker, the learner first."""
        coordinator, loss = self._pipeline.coordinator, self._loss()
        newest, rows = coordinator.version(coordinator.name), []
        workers = sorted(coordinator.workers.counts().items(), key=lambda item: item[1]['role'] != 'learner')
        for name, facts in workers:
            if facts['role'] == 'learner':
                updates, shown_loss = f'{facts["train_iter"]:,}', '' if loss is None else number_text(loss)
                shown = ['', '', updates, f'{newest:,}', '', shown_loss]
            else:
                speed, behind = self._speed(name, facts['envstep']), max(newest - facts['version'], 0)
                shown = [
                    f'{facts["envstep"]:,}',
                    f'{speed:,.0f}',
                    '',
                    f'{facts["version"]:,}',
                    f'{behind:,}',
                    '',
                ]
            is_silent = facts['silent'] > coordinator.patience / 2
            state = STATES.get(facts['state'], facts['state'])
            rows.append([name, f'silent {facts["silent"]:.0f} s' if is_silent else state, *shown])
        return rows

    def _speed(self, name: str, envstep: int) -> float:
        """Returns the env steps per second of a worker since it was first seen, or last replaced."""
        now = monotonic()
        since, before = self._joined.setdefault(name, (now, envstep))
        if envstep < before:
            since, before = self._joined[name] = now, envstep
        return (envstep - before) / max(now - since, 1e-9)

    def _mean_return(self) -> float:
        return float(self._pipeline.record.episodes.window_mean())

    def _statuses(self) -> list[str]:
        workers, crew = self._pipeline.coordinator.workers, self._pipeline.crew
        present = {role: workers.present(role) for role in ('learner', 'collector')}
        texts = [', '.join(count_of(present[role], role) for role in ('collector', 'learner'))]
        is_over = self._pipeline.coordinator.system_shutdown_flag
        if not is_over and (not present['collector'] or not present['learner']):
            texts.append('waiting for workers')
        if workers.lost:
            texts.append(f'{len(workers.lost)} lost')
        if crew is not None and crew.restarts:
            texts.append(f'{crew.restarts} restarted')
        return texts

    def _loss(self) -> float | None:
        variables = self._pipeline.record.variables
        loss: float | None = variables.get('train/total_loss', variables.get('total_loss'))
        return loss


SEED_COLUMNS = ('seed', 'state', 'env steps', 'steps/s', 'return', 'eval', 'time')


class SeedDisplay:
    """Shows the progress of the runs while it is entered as a context."""

    def __init__(self) -> None:
        self._screen = screen_of(Console(stderr=True))
        self._next = 0.0
        self._is_over = False

    def __enter__(self) -> SeedDisplay:
        self._screen.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._screen.stop()

    def show(self, runs: Sequence[SeedRun]) -> None:
        """Shows the present state if it is time to."""
        now, is_over = monotonic(), all(run.state not in ('waiting', 'running') for run in runs)
        if self._is_over or (now < self._next and not is_over):
            return
        self._next, self._is_over = now + self._screen.period, is_over
        self._screen.show(lambda width: picture(runs, width))


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
        mean, interval = math.fsum(scores) / len(scores), interval_of(scores)
        text = f", 95 % interval {interval} (Student's t)" if interval else ''
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
