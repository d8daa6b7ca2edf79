"""The results of a search: the best config as a file, the best policy, a table and a plot."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from ray.tune import CLIReporter

from rlframe.app.figure import can_draw, save_figure, scatter_panels
from rlframe.config import split_config, write_total_config
from rlframe.errors import RLFrameError
from rlframe.export.artifact import open_source
from rlframe.export.exporter import FORMATS
from rlframe.scores import clock_text
from rlframe.tune.trial import (
    BUDGET_PARTS,
    CHECKPOINT,
    PARTS,
    SEARCH,
    TrialBase,
    compile_trial,
    trial_options,
)

CONFIG, TABLE, PICTURE, POLICY = 'best_config.py', 'trials.csv', 'scores.png', 'best_policy'
"""Names in the results folder."""


class TrialTable(CLIReporter):  # type: ignore[misc]  # Ray is untyped
    """Ray's own table of the trials, with the metric by which they are compared and the time left, on the standard error."""

    # when the search began to be shown, and the share that was done then
    _first: tuple[float, float] | None = None

    def __init__(self, metric: str) -> None:
        columns = {metric: metric, 'timesteps_total': 'env steps', 'training_iteration': 'evaluations'}
        super().__init__(metric_columns=columns, print_intermediate_tables=True, sort_by_metric=True)

    def report(self, trials: list[Any], done: bool, *sys_info: str) -> None:
        """Prints the table, with the time left if no further trial ends early."""
        share = sum(map(_done, trials)) / max(self._total_samples or 0, len(trials), 1)
        begin, before = self._first = self._first or (monotonic(), share)
        seconds = (1 - share) * (monotonic() - begin) / (share - before) if share > before else None
        left = '--:--' if seconds is None else clock_text(seconds)
        super().report(trials, done, *sys_info, *([] if done else [f'About {left} left']))

    def _print(self, msg: str) -> None:
        sys.stderr.write(f'{msg}\n')


def _done(trial: Any) -> float:
    """Returns the done share of a trial, by its budget in env steps."""
    if trial.is_finished():
        return 1.0
    return min(float((trial.last_result or {}).get(BUDGET_PARTS, 0.0)) / PARTS, 1.0)


@dataclasses.dataclass(frozen=True)
class Row:
    """One trial."""

    name: str
    options: Mapping[str, Any]
    """Its sampled options at its best score, by dotted keys."""
    config: Mapping[str, Any]
    """Its full config at its best score, as ``RLTrainable`` takes it; empty if it reached no score."""
    score: float
    """Its best score; NaN if it reached none."""
    env_steps: int
    """Env steps behind that score."""
    seconds: float
    """Its total training time."""
    error: str
    """Type and message of the error that ended it, empty if there was none."""
    result: Any
    """Ray's record of it."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of a search, and their location."""

    folder: Path
    """The results folder."""
    metric: str
    """Name of the score that trials are compared by."""
    rows: tuple[Row, ...]
    """The trials, the best first."""
    notes: tuple[str, ...]
    """Files that could not be written, with the reasons."""

    @property
    def best(self) -> Row | None:
        """The trial with the best score, if any."""
        return self.rows[0] if self.rows and not math.isnan(self.rows[0].score) else None

    @property
    def written(self) -> list[str]:
        """Existing files among ``best_config.py``, ``best_policy``, ``trials.csv`` and ``scores.png``."""
        return [name for name in (CONFIG, POLICY, TABLE, PICTURE) if (self.folder / name).exists()]

    @property
    def errors(self) -> list[Row]:
        """The trials that ended by an error."""
        return [row for row in self.rows if row.error]


def write_report(results: Any) -> Report:
    """Writes ``best_config.py``, ``best_policy/``, ``trials.csv`` and ``scores.png`` into the results folder.

    ``results`` come from ``fit`` of a tuner from ``make_tuner``. Returns the same in numbers.
    """
    folder = Path(results.experiment_path)
    search = json.loads((folder / SEARCH).read_text(encoding='utf-8'))
    metric = search['metric']
    sign = -1.0 if search['mode'] == 'max' else 1.0
    rows = [_row(result, metric, sign) for result in results]
    rows.sort(key=lambda row: (math.inf if math.isnan(row.score) else sign * row.score, row.env_steps))
    report = Report(folder, metric, tuple(rows), ())
    _write_table(folder / TABLE, rows, metric)
    if report.best is None:
        return report
    notes = _write_best(folder, report.best, metric) + _draw(folder / PICTURE, rows, metric)
    return dataclasses.replace(report, notes=tuple(notes))


def _row(result: Any, metric: str, sign: float) -> Row:
    """Returns a trial as it was when its score was best; options of a trial may change while it trains."""
    last = result.metrics or {}
    kept = [metrics for _, metrics in result.best_checkpoints or ()] + [last]
    scored = [metrics for metrics in kept if math.isfinite(metrics.get(metric, math.nan))]
    best: Mapping[str, Any] = min(scored, key=lambda metrics: sign * metrics[metric], default={})
    config = next((c for c in (best.get('config'), result.config) if _is_whole(c)), None)
    return Row(
        name=Path(result.path).name,
        options=trial_options(config or _noted_config(Path(result.path))),
        config=config or {},
        score=best.get(metric, math.nan),
        env_steps=int(best.get('timesteps_total') or 0),
        seconds=float(last.get('time_total_s') or 0.0),
        error=_described(result.error),
        result=result,
    )


def _is_whole(config: Any) -> bool:
    """Whether a config is a trial's config, not the content of a config file."""
    if not isinstance(config, Mapping):
        return False
    base = config.get('config')
    return 'main_config' in config or isinstance(base, TrialBase) or Path(str(base)).is_absolute()


def _noted_config(path: Path) -> dict[str, Any]:
    """Returns Tune's record of the config of a trial without results; not the config that it shares with others."""
    file = path / 'params.json'
    return dict(json.loads(file.read_text(encoding='utf-8'))) if file.is_file() else {}


def _described(error: BaseException | None) -> str:
    """Returns an error in one line: for an error from an actor, the original exception."""
    if error is None:
        return ''
    cause = getattr(error, 'cause', None) or error
    if cause is error:
        last = str(error).strip().splitlines()[-1:] or ['']
        return f'{type(error).__name__}: {last[0]}'
    return f'{type(cause).__name__}: {cause}'


def _write_table(path: Path, rows: Sequence[Row], metric: str) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row.options))
    with open(path, 'w', encoding='utf-8', newline='') as file:
        table = csv.writer(file)
        table.writerow(['trial', metric, *keys, 'env_steps', 'seconds', 'error'])
        for row in rows:
            options = [row.options.get(key, '') for key in keys]
            table.writerow([row.name, row.score, *options, row.env_steps, round(row.seconds, 1), row.error])


def _write_best(folder: Path, best: Row, metric: str) -> list[str]:
    """Writes the config of the best trial, and the policy as it was when its score was best."""
    cfg = compile_trial(best.config)
    write_total_config(folder / CONFIG, *split_config(cfg))
    checkpoint = _best_checkpoint(best, metric)
    if checkpoint is None:
        return [f'{POLICY}: not written, as {best.name} left no checkpoint']
    try:
        source = open_source(checkpoint, trust=True)
        FORMATS['artifact'].check(source, folder / POLICY)
        FORMATS['artifact'].write(source, folder / POLICY)
    except (RLFrameError, OSError) as error:
        return [f'{POLICY}: not written: {error}']
    return []


def _best_checkpoint(best: Row, metric: str) -> Path | None:
    """Returns the checkpoint with the best score, or the last one if that was not kept."""
    saved = best.result.best_checkpoints or ()
    kept = [checkpoint for checkpoint, metrics in saved if metrics.get(metric) == best.score]
    chosen = kept[0] if kept else best.result.checkpoint
    return None if chosen is None else Path(chosen.path) / CHECKPOINT


def _draw(path: Path, rows: Sequence[Row], metric: str) -> list[str]:
    """Draws the score against each option that differs between trials."""
    scored = [row for row in rows if not math.isnan(row.score)]
    keys = [key for key in scored[0].options if len({str(row.options.get(key)) for row in scored}) > 1]
    if not keys:
        return []
    if not can_draw():
        return [f"{path.name}: not drawn, as matplotlib is not installed: pip install 'rlframe[tune]'"]
    columns = {key: [row.options.get(key) for row in scored] for key in keys}
    title = f'{len(scored)} trials; the star is {scored[0].name}'
    save_figure(scatter_panels(columns, [row.score for row in scored], metric, title), [path])
    return []
