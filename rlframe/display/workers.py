"""The display of a parallel run: a table of the workers above the line of every run."""

from __future__ import annotations

from time import monotonic
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlframe.display.live import Display
from rlframe.display.saying import count_of
from rlframe.scores import number_text

SPEED_SECONDS = 2.0
"""Seconds over which the speed of a worker is measured, at least."""
COLUMNS = ('worker', 'state', 'steps', 'steps/s', 'updates', 'weights', 'behind', 'loss')
STATES = {'collect_at_random': 'random'}
"""Shorter words for states."""


class Speeds:
    """Speeds of counters, by name, measured over some seconds."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}
        self._speeds: dict[str, float] = {}

    def of(self, name: str, count: int) -> float:
        """Returns the speed of a counter that stands at ``count`` now, per second."""
        now = monotonic()
        since, before = self._before.setdefault(name, (now, count))
        if count < before:
            since, before = self._before[name] = now, count
        if now - since >= SPEED_SECONDS:
            self._speeds[name] = (count - before) / (now - since)
            self._before[name] = now, count
        return self._speeds.get(name, 0.0)


class ParallelDisplay(Display):
    """Shows the state and the speed of each worker, its weights, and their lag behind the newest, in updates."""

    def __init__(self, pipeline: Any) -> None:
        super().__init__(pipeline)
        self._speeds = Speeds()

    def _picture(self, line: Text, width: int | None) -> RenderableType:
        if width is None:
            return line
        table = Table(box=None, pad_edge=False, header_style='bold')
        for name in COLUMNS:
            table.add_column(name, justify='left' if name in COLUMNS[:2] else 'right', no_wrap=True)
        for row in self.rows():
            table.add_row(*row)
        return Group(table, line)

    def rows(self) -> list[list[str]]:
        """Returns the table's row of every present worker, the learner first."""
        coordinator, loss = self._pipeline.coordinator, self._loss()
        newest, rows = coordinator.weights.version(coordinator.name), []
        for name, facts in sorted(
            coordinator.workers.counts().items(), key=lambda item: item[1]['role'] != 'learner'
        ):
            if facts['role'] == 'learner':
                shown = [
                    '',
                    '',
                    f'{facts["train_iter"]:,}',
                    f'{newest:,}',
                    '',
                    '' if loss is None else number_text(loss),
                ]
            else:
                behind = max(newest - facts['version'], 0)
                speed = self._speeds.of(name, facts['envstep'])
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
            state = f'silent {facts["silent"]:.0f} s' if is_silent else state
            rows.append([name, state, *shown])
        return rows

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
