"""Compares groups of runs: their options, scores, env steps to the goal and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.analysis.groups import Group, differing, grouped, shown
from rlframe.analysis.run_files import RunFiles, check_one_env
from rlframe.analysis.statistics import RESAMPLES, Estimate, estimate
from rlframe.errors import ExperimentDirError
from rlframe.run.time_split import KINDS
from rlframe.scores import decimals_of


class Row(NamedTuple):
    """The results of a group."""

    group: Group
    final: Estimate
    """Interquartile mean over runs of the score of the last evaluation."""
    best: Estimate
    """The same of the best evaluation."""
    steps_to_goal: float
    """Mean env steps to the goal, of the runs that reached it; NaN if none did."""
    reached: int
    """Number of runs that reached the goal."""
    seconds: float
    """Mean seconds of a run."""
    shares: Mapping[str, float]
    """Shares of collection, learning and evaluation in the time; empty if the runs did not record them."""


class Comparison(NamedTuple):
    """The results of several groups."""

    env: str
    metric: str
    """The metric that is the score."""
    rows: tuple[Row, ...]
    options: Mapping[str, list[Any]]
    """Options that differ, with a value for each group."""


def compare_runs(runs: Sequence[RunFiles]) -> Comparison:
    """Compares runs, grouped by everything but their seeds.

    Raises:
        ExperimentDirError: If they have different envs, or one has no score yet.
    """
    env, groups = check_one_env(runs), grouped(runs)
    metric = runs[0].score_tag
    for run in runs:
        if metric not in run.metrics.tags:
            raise ExperimentDirError(f'this run has not written {metric} yet', where=str(run.folder))
    rows = tuple(_row(group, metric) for group in groups)
    return Comparison(env, metric, rows, differing(groups))


def _row(group: Group, metric: str) -> Row:
    curves = group.curves(metric)
    steps = [run.steps_to_goal() for run in group.runs]
    reached = [each for each in steps if math.isfinite(each)]
    splits = [run.time_split() for run in group.runs]
    total = sum(sum(split.values()) for split in splits)
    shares = (
        {kind: sum(split[kind] for split in splits) / total for kind in splits[0]}
        if all(splits) and total
        else {}
    )
    return Row(
        group,
        final=estimate([float(curve.values[-1]) for curve in curves]),
        best=estimate([float(curve.values.max()) for curve in curves]),
        steps_to_goal=sum(reached) / len(reached) if reached else math.nan,
        reached=len(reached),
        seconds=sum(run.seconds for run in group.runs) / len(group.runs),
        shares=shares,
    )


def as_data(comparison: Comparison) -> dict[str, Any]:
    """Returns a comparison as plain data for JSON; numbers that do not exist are None."""
    rows = [
        {
            'label': row.group.label,
            'runs': [str(run.folder) for run in row.group.runs],
            'final': _estimate_data(row.final),
            'best': _estimate_data(row.best),
            'reached_goal': row.reached,
            'env_steps_to_goal': _or_none(row.steps_to_goal),
            'seconds': _or_none(row.seconds),
            'time_shares': dict(row.shares),
            'options': {key: values[i] for key, values in comparison.options.items()},
        }
        for i, row in enumerate(comparison.rows)
    ]
    how = {'statistic': 'interquartile mean over runs', 'interval': '95 % bootstrap', 'resamples': RESAMPLES}
    return {'env': comparison.env, 'metric': comparison.metric, **how, 'groups': rows}


def _estimate_data(value: Estimate) -> dict[str, float]:
    return {'value': value.value, 'low': value.low, 'high': value.high}


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


MOST_OPTIONS = 20
"""Options in a table of text."""


def as_text(comparison: Comparison) -> str:
    """Returns a comparison as tables, one column for each group."""
    rows = comparison.rows
    seeds = max(len(row.group.runs) for row in rows)
    lines: list[tuple[str, list[str]]] = [
        ('runs', [str(len(row.group.runs)) for row in rows]),
        ('final score', [_estimate_text(row.final) for row in rows]),
        ('best score', [_estimate_text(row.best) for row in rows]),
        ('reached the goal', [f'{row.reached} of {len(row.group.runs)}' for row in rows]),
        ('env steps to it', [_or_dash(row.steps_to_goal, '{:,.0f}'.format) for row in rows]),
        ('seconds', [_or_dash(row.seconds, '{:,.1f}'.format) for row in rows]),
        *(
            (f'  {kind}', [f'{100 * row.shares[kind]:.0f} %' if row.shares else '-' for row in rows])
            for kind in KINDS
        ),
    ]
    head = ('', [row.group.label for row in rows])
    parts = [f'{comparison.env}, score: {comparison.metric}', _table([head, *lines])]
    if comparison.options:
        parts.append(_options_text(comparison.options, head))
    what = 'interquartile mean' if seeds > 3 else 'mean'  # the same for fewer than 4 runs
    parts.append(f'scores: {what} over runs [95 % bootstrap interval, {RESAMPLES:,} resamples]')
    return '\n\n'.join(parts)


def _options_text(options: Mapping[str, list[Any]], head: tuple[str, list[str]]) -> str:
    """Returns the options that all groups have; those of single policies are counted."""
    shared = [key for key, values in options.items() if None not in values] or list(options)
    cells = [(key, list(map(shown, options[key]))) for key in shared[:MOST_OPTIONS]]
    rest = len(options) - len(cells)
    more = f'\n... and {rest} more, most of which only some of them have: see --json' if rest else ''
    return f'options that differ\n\n{_table([head, *cells])}{more}'


def _table(lines: Sequence[tuple[str, Sequence[str]]]) -> str:
    names = max(len(name) for name, _ in lines)
    widths = [max(len(cells[i]) for _, cells in lines) for i in range(len(lines[0][1]))]
    return '\n'.join(
        f'{name:{names}}  ' + '  '.join(f'{cell:>{width}}' for cell, width in zip(cells, widths, strict=True))
        for name, cells in lines
    )


def _or_dash(value: float, text: Callable[[float], str]) -> str:
    return text(value) if math.isfinite(value) else '-'


def _estimate_text(value: Estimate) -> str:
    """Returns a score with its interval, ``418.3 [391.0, 452.5]``."""
    digits = decimals_of(value.value)
    if value.runs == 1:
        return f'{value.value:.{digits}f}'
    return f'{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]'
