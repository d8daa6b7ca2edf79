"""Compares groups of runs: their options, scores, env steps to the goal and time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.app.run_files import SCORE, Curve, SavedRun, check_one_env
from rlframe.errors import ExperimentDirError
from rlframe.run.progress import KINDS
from rlframe.scores import interquartile_mean, number_text

RESAMPLES = 2_000
"""Resamples of a bootstrap. The generator is seeded, so that the same runs give the same interval."""
LEVEL = 0.95
"""Level of the intervals."""
Array = np.ndarray[Any, Any]

OF_ONE_RUN = ('seed', 'exp_name')
"""Options in which runs of one group may differ."""
GRID = 200
"""Points of a mean curve."""
MOST_WORDS = 3
"""Options in a label; if more differ, folders are the labels."""
LONGEST_VALUE = 24
"""Letters of a value in a label or a table."""
MOST_OPTIONS = 20
"""Options in a table of text."""


def mean(scores: Array) -> Array:
    """Returns the mean along the last axis."""
    result: Array = np.asarray(scores, float).mean(axis=-1)
    return result


def bootstrap(scores: Array, statistic: Callable[[Array], Array] = mean) -> tuple[Array, Array]:
    """Returns the percentile bootstrap interval of a statistic over runs.

    Args:
        scores: Scores of runs along the last axis. float [..., K], K >= 1.
        statistic: Reduces the last axis.

    Returns:
        Lower and upper end. float64 [...].
    """
    scores = np.asarray(scores, float)
    count = scores.shape[-1]
    chosen = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    return _interval(np.stack([statistic(scores[..., index]) for index in chosen]))


def _interval(values: Array) -> tuple[Any, Any]:
    """Returns the bounds between which ``LEVEL`` of the resamples lie, along the first axis."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail], axis=0)
    return low, high


def estimate(scores: Sequence[float]) -> dict[str, float]:
    """Returns the interquartile mean of the runs' scores as ``value``, with its bootstrap interval; for one run, its score."""
    array = np.asarray(scores, float)
    value = float(interquartile_mean(array))
    low, high = bootstrap(array, interquartile_mean) if len(scores) > 1 else (value, value)
    return {'value': value, 'low': float(low), 'high': float(high)}


def improvement(*envs: tuple[Sequence[float], Sequence[float]]) -> dict[str, float]:
    """Returns how probably a run of one group scores higher than a run of another, as a mean over envs, and its interval.

    An equal score counts half. Each resample draws runs of either group, env by env and independently of the other: the
    stratified bootstrap.

    Args:
        envs: Scores of the one group and of the other, for each env.

    Source:
        Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (2021), section 4.3; Mann &
        Whitney (1947).
    """
    rng = np.random.default_rng(0)
    values = []
    drawn = []
    for scores, others in envs:
        wins = (np.sign(np.asarray(scores, float)[:, None] - np.asarray(others, float)) + 1) / 2  # [K, L]
        rows, columns = (rng.integers(n, size=(RESAMPLES, n)) for n in wins.shape)
        values.append(wins.mean())
        drawn.append(wins[rows[:, :, None], columns[:, None, :]].mean((1, 2)))
    low, high = _interval(np.mean(drawn, axis=0))
    return {'value': float(np.mean(values)), 'low': float(low), 'high': float(high)}


class Band(NamedTuple):
    """The mean curve of a group, with the interval at each point."""

    steps: np.ndarray[Any, Any]
    mean: np.ndarray[Any, Any]
    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    label: str
    runs: tuple[SavedRun, ...]

    def curves(self, tag: str, smooth: int = 1, by: str = 'envstep') -> list[Curve]:
        """Returns the curve of each run that has the metric; ``by``: see ``MetricColumns``."""
        found = [run.curve(tag, by) for run in self.runs]
        return [Curve(curve.steps, smoothed(curve.values, smooth)) for curve in found if len(curve.steps)]

    def band(self, tag: str, smooth: int = 1, by: str = 'envstep') -> Band | None:
        """Returns the mean curve over runs, with bootstrap intervals; None for a single run.

        A run that reached its goal keeps its last return; the curve ends where the first other run ends.
        """
        runs = [run for run in self.runs if len(run.curve(tag).steps)]
        curves = self.curves(tag, smooth, by)
        if len(curves) < 2:
            return None
        ends = [curve.steps[-1] for curve in curves]
        keeps = tag.startswith(('eval/', 'rollout/'))
        due = [end for end, run in zip(ends, runs, strict=True) if not keeps or np.isnan(run.steps_to_goal())]
        start = max(curve.steps[0] for curve in curves)
        stop = min(due, default=max(ends))
        if stop <= start:
            return None
        steps = np.linspace(start, stop, GRID)
        values = np.stack([np.interp(steps, *curve) for curve in curves], axis=-1)
        return Band(steps, mean(values), *bootstrap(values))


def smoothed(values: np.ndarray[Any, Any], window: int) -> np.ndarray[Any, Any]:
    """Returns the moving average over the last ``window`` values."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: np.ndarray[Any, Any] = (sums[ends] - sums[starts]) / (ends - starts)
    return values if window == 1 else means


def grouped(runs: Sequence[SavedRun]) -> list[Group]:
    """Groups runs that differ only in their seed and their folder, in the order given."""
    found: dict[str, list[SavedRun]] = {}
    for run in runs:
        rest = {key: value for key, value in run.options.items() if key not in OF_ONE_RUN}
        found.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(run)
    members = list(found.values())
    return [Group(label, tuple(each)) for label, each in zip(_labels(members), members, strict=True)]


def _differing(options: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns the options that differ: a value for each of these configs, None where one lacks the option."""
    keys = dict.fromkeys(key for each in options for key in each if key not in OF_ONE_RUN)
    columns = {key: [each.get(key) for each in options] for key in keys}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def _labels(members: Sequence[Sequence[SavedRun]]) -> list[str]:
    """Returns the policy of each group, with the options that differ from groups of the same policy."""
    firsts = [runs[0] for runs in members]
    policies = [run.policy for run in firsts]
    labels = []
    for run in firsts:
        alike = [other.options for other in firsts if other.policy == run.policy]
        keys = list(_differing(alike))
        words = [f'{_short(key, keys)}={shown(run.options.get(key))}' for key in keys]
        is_short = len(keys) <= MOST_WORDS
        policy = [run.policy] if len(set(policies)) > 1 or not words else []
        labels.append(', '.join([*policy, *words]) if is_short else run.name)
    return labels if len(set(labels)) == len(labels) else [run.name for run in firsts]


def _short(key: str, others: Sequence[str]) -> str:
    """Returns the last part of a dotted key, if no other key ends in it."""
    last = key.rpartition('.')[2]
    return last if [other.rpartition('.')[2] for other in others].count(last) == 1 else key


def shown(value: Any) -> str:
    """Returns a value of a config as a short text."""
    text = f'{value:g}' if isinstance(value, float) else value_text(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + '...'


def value_text(value: Any) -> str:
    """Returns a value of a config as text."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def default_metric(groups: Sequence[Group]) -> str:
    """Returns the metric to show if none is asked for."""
    tags = [run.score_tag for group in groups for run in group.runs if run.metrics.tags]
    return tags[0] if tags else SCORE


def compare_runs(runs: Sequence[SavedRun]) -> dict[str, Any]:
    """Compares runs, grouped by everything but their seeds.

    Returns:
        ``env``, ``metric``, and the results of each of the ``groups`` as plain data for JSON; numbers that do not exist are
        None. ``improvement`` is the probability that a run has a higher final score than a run of the first group.

    Raises:
        ExperimentDirError: If they have different envs, or one has no score yet.
    """
    env = check_one_env(runs)
    groups = grouped(runs)
    metric = runs[0].score_tag
    for run in runs:
        if metric not in run.metrics.tags:
            raise ExperimentDirError(f'this run has not written {metric} yet', where=str(run.folder))
    differ = _differing([group.runs[0].options for group in groups])
    rows = [_row(group, metric) for group in groups]
    finals = [[float(curve.values[-1]) for curve in group.curves(metric)] for group in groups]
    for i, row in enumerate(rows):
        row['improvement'] = improvement((finals[i], finals[0])) if i else None
        row['options'] = {key: values[i] for key, values in differ.items()}
    how = {'statistic': 'interquartile mean over runs', 'interval': '95 % bootstrap', 'resamples': RESAMPLES}
    return {'env': env, 'metric': metric, **how, 'groups': rows}


def _row(group: Group, metric: str) -> dict[str, Any]:
    """Returns the results of a group: means over its runs; the mean steps to the goal over the runs that reached it."""
    curves = group.curves(metric)
    runs = group.runs
    reached = [steps for run in runs if math.isfinite(steps := run.steps_to_goal())]
    seconds = sum(run.seconds for run in runs) / len(runs)
    splits = [run.time_split() for run in runs]
    spent = {kind: sum(split[kind] for split in splits) for kind in splits[0]} if all(splits) else {}
    total = sum(spent.values())
    return {
        'label': group.label,
        'runs': [str(run.folder) for run in runs],
        'final': estimate([float(curve.values[-1]) for curve in curves]),
        'best': estimate([float(curve.values.max()) for curve in curves]),
        'reached_goal': len(reached),
        'env_steps_to_goal': sum(reached) / len(reached) if reached else None,
        'seconds': seconds if math.isfinite(seconds) else None,
        'time_shares': {kind: each / total for kind, each in spent.items() if total},
    }


def as_text(found: Mapping[str, Any]) -> str:
    """Returns the result of ``compare_runs`` as tables, one column for each group."""
    rows: list[dict[str, Any]] = found['groups']
    seeds = max(len(row['runs']) for row in rows)
    shares = [row['time_shares'] for row in rows]
    better = [_estimate_text(row, 'improvement') for row in rows]
    head = ('', [row['label'] for row in rows])
    lines: list[tuple[str, list[str]]] = [
        head,
        ('runs', [str(len(row['runs'])) for row in rows]),
        ('final score', [_estimate_text(row, 'final') for row in rows]),
        ('best score', [_estimate_text(row, 'best') for row in rows]),
        *([('above the first', better)] if len(rows) > 1 else []),
        ('reached the goal', [f'{row["reached_goal"]} of {len(row["runs"])}' for row in rows]),
        ('env steps to it', [_or_dash(row['env_steps_to_goal'], '{:,.0f}') for row in rows]),
        ('seconds', [_or_dash(row['seconds'], '{:,.1f}') for row in rows]),
        *(
            (f'  {kind}', [_or_dash(each.get(kind) and 100 * each[kind], '{:.0f} %') for each in shares])
            for kind in KINDS
        ),
    ]
    parts = [f'{found["env"]}, score: {found["metric"]}', _table(lines)]
    if options := [row['options'] for row in rows if row['options']]:
        parts.append(_options_text(options, head))
    what = 'interquartile mean' if seeds > 3 else 'mean'  # the same for fewer than 4 runs
    parts.append(f'scores: {what} over runs [95 % bootstrap interval, {RESAMPLES:,} resamples]')
    return '\n\n'.join(parts)


def _options_text(options: Sequence[Mapping[str, Any]], head: tuple[str, list[str]]) -> str:
    """Returns the options that all groups share, and the number of options that only some policies have."""
    columns = {key: [each[key] for each in options] for key in options[0]}
    shared = [key for key, values in columns.items() if None not in values] or list(columns)
    cells = [(key, list(map(shown, columns[key]))) for key in shared[:MOST_OPTIONS]]
    rest = len(columns) - len(cells)
    more = f'\n... and {rest} more, most of which only some of them have: see --json' if rest else ''
    return f'options that differ\n\n{_table([head, *cells])}{more}'


def _table(lines: Sequence[tuple[str, Sequence[str]]]) -> str:
    names = max(len(name) for name, _ in lines)
    widths = [max(len(cells[i]) for _, cells in lines) for i in range(len(lines[0][1]))]
    return '\n'.join(
        f'{name:{names}}  ' + '  '.join(f'{cell:>{width}}' for cell, width in zip(cells, widths, strict=True))
        for name, cells in lines
    )


def _or_dash(value: float | None, text: str) -> str:
    return '-' if value is None else text.format(value)


def _estimate_text(row: Mapping[str, Any], what: str) -> str:
    """Returns a score of a group with its interval, ``418.3 [391, 452.5]``, or a dash if it has none."""
    if row[what] is None:
        return '-'
    value, low, high = (number_text(row[what][name]) for name in ('value', 'low', 'high'))
    return f'{value} [{low}, {high}]' if len(row['runs']) > 1 else value
