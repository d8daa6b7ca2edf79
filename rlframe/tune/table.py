"""TrialTable: shows the trials of a running search on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from ray.tune import Callback
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlframe.scores import number_text
from rlframe.tune.trial import short_value, trial_options

LIVE_SECONDS, PLAIN_SECONDS = 0.5, 10.0
"""Seconds between two updates of the table, and between two plain lines if there is no terminal."""
ROWS = 20
"""Trials that are shown at most: those that run, then the best."""


class TrialTable(Callback):  # type: ignore[misc]  # Ray is untyped
    """Shows each trial's options, progress and score: a table on a terminal, a line now and then elsewhere.

    Args:
        metric: Score by which trials are compared.
        mode: ``max`` or ``min``.
    """

    def __init__(self, metric: str, mode: str = 'max') -> None:
        self._metric, self._mode = metric, mode
        self._console: Console | None = None
        self._live: Live | None = None
        self._begin = self._last = 0.0
        self._total = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), '_console': None, '_live': None}

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Begins to show."""
        self._total = total_num_samples or 0
        self._console = Console(stderr=True)
        self._begin = self._last = monotonic()
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Shows the trials as they are, if it is time to."""
        if monotonic() - self._last > (PLAIN_SECONDS if self._live is None else LIVE_SECONDS):
            self.show(trials)

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Shows the trials for the last time."""
        self.show(trials)
        self.close()

    def close(self) -> None:
        """Gives the terminal back; may be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, trials: Sequence[Any]) -> None:
        """Shows the trials as they are."""
        self._last = monotonic()
        if self._live is not None:
            self._live.update(Group(Text(self._line(trials)), self._table(trials)), refresh=True)
        elif self._console is not None:
            self._console.print(self._line(trials), highlight=False, soft_wrap=True)

    def _line(self, trials: Sequence[Any]) -> str:
        states = [trial.status for trial in trials]
        counts = ', '.join(f'{states.count(s)} {word}' for s, word in WORDS.items() if s in states)
        folder = [Path(trial.storage.experiment_fs_path).name for trial in trials[:1] if trial.storage]
        parts = [*folder, f'trials: {counts or "none yet"}' + (f' of {self._total}' if self._total else '')]
        scored = [trial for trial in trials if not math.isnan(self._best(trial))]
        if scored:
            best = min(scored, key=self._order)
            options = ', '.join(f'{k.rpartition(".")[2]}={short_value(v)}' for k, v in _own(best).items())
            parts.append(f'best {number_text(self._best(best))} ({best.trial_id}: {options})')
        parts.append(f'{monotonic() - self._begin:.0f} s')
        return ' | '.join(parts)

    def _table(self, trials: Sequence[Any]) -> Table:
        keys = list(dict.fromkeys(key for trial in trials for key in _own(trial)))
        heads = ['trial', 'state', *(key.rpartition('.')[2] for key in keys), 'evaluations', 'env steps']
        table = Table(*heads, self._metric, 'best', box=None, pad_edge=False)
        for trial in sorted(trials, key=lambda t: (t.status != 'RUNNING', self._order(t)))[:ROWS]:
            last = trial.last_result or {}
            counts = [f'{last.get(name) or 0:,}' for name in ('training_iteration', 'timesteps_total')]
            scores = [last.get(self._metric, math.nan), self._best(trial)]
            options = [short_value(_own(trial).get(key, '')) for key in keys]
            state = WORDS.get(trial.status, trial.status.lower())
            shown = ['' if math.isnan(score) else number_text(score) for score in scores]
            table.add_row(trial.trial_id, state, *options, *counts, *shown)
        if len(trials) > ROWS:
            table.caption = f'and {len(trials) - ROWS} more'
        return table

    def _best(self, trial: Any) -> float:
        return float(trial.metric_analysis.get(self._metric, {}).get(self._mode, math.nan))

    def _order(self, trial: Any) -> float:
        score = self._best(trial)
        return math.inf if math.isnan(score) else (-score if self._mode == 'max' else score)


WORDS = {
    'RUNNING': 'running',
    'PENDING': 'waiting',
    'PAUSED': 'paused',
    'TERMINATED': 'done',
    'ERROR': 'failed',
}
"""States of trials, in words."""


def _own(trial: Any) -> dict[str, Any]:
    return trial_options(trial.config)
