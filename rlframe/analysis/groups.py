"""Group: runs that differ only in their seed, with a label that tells them from other groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.analysis.metric_file import LARGEST, Curve
from rlframe.analysis.run_files import SCORE, RunFiles
from rlframe.analysis.statistics import bootstrap, mean

OF_ONE_RUN = ('seed', 'exp_name')
"""Options in which runs of one group may differ."""
GRID = 200
"""Points of a mean curve."""
MOST_WORDS = 3
"""Options in a label; if more differ, folders are the labels."""
LONGEST_VALUE, SHORTENED = 24, 10**9


class Band(NamedTuple):
    """The mean curve of a group, with the interval at each point."""

    steps: np.ndarray[Any, Any]
    mean: np.ndarray[Any, Any]
    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    label: str
    runs: tuple[RunFiles, ...]

    def curves(self, tag: str, smooth: int = 1) -> list[Curve]:
        """Returns the curve of each run that has the metric."""
        found = [run.metrics.curve(tag) for run in self.runs]
        return [Curve(curve.steps, smoothed(curve.values, smooth)) for curve in found if len(curve.steps)]

    def band(self, tag: str, smooth: int = 1) -> Band | None:
        """Returns the mean curve over runs, with bootstrap intervals; None for a single run.

        A run that reached its goal keeps its last return; the curve ends where the first other run ends.
        """
        runs = [run for run in self.runs if len(run.metrics.curve(tag).steps)]
        curves = self.curves(tag, smooth)
        if len(curves) < 2:
            return None
        ends = [curve.steps[-1] for curve in curves]
        keeps = tag.startswith(('eval/', 'rollout/'))
        due = [end for end, run in zip(ends, runs, strict=True) if not keeps or np.isnan(run.steps_to_goal())]
        start, stop = max(curve.steps[0] for curve in curves), min(due, default=max(ends))
        if stop <= start:
            return None
        steps = np.linspace(start, stop, GRID)
        values = np.stack([np.interp(steps, *curve) for curve in curves], axis=-1)
        return Band(steps, mean(values), *bootstrap(values))


def smoothed(values: np.ndarray[Any, Any], window: int) -> np.ndarray[Any, Any]:
    """Returns the mean of each value and of those before it, ``window`` values in all."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: np.ndarray[Any, Any] = (sums[ends] - sums[starts]) / (ends - starts)
    return values if window == 1 else means


def grouped(runs: Sequence[RunFiles]) -> list[Group]:
    """Groups runs that differ only in their seed and their folder, in the order given."""
    found: dict[str, list[RunFiles]] = {}
    for run in runs:
        rest = {key: value for key, value in run.options.items() if key not in OF_ONE_RUN}
        found.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(run)
    members = list(found.values())
    return [Group(label, tuple(each)) for label, each in zip(_labels(members), members, strict=True)]


def differing(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Returns the options in which groups differ: a value for each group, ``None`` where a group lacks the option."""
    return _differing([group.runs[0].options for group in groups])


def _differing(options: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key for each in options for key in each if key not in OF_ONE_RUN)
    columns = {key: [each.get(key) for each in options] for key in keys}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def _labels(members: Sequence[Sequence[RunFiles]]) -> list[str]:
    """Returns the policy of each group, with the options that differ from groups of the same policy."""
    firsts = [runs[0] for runs in members]
    policies = [run.policy for run in firsts]
    labels = []
    for run in firsts:
        alike = [other.options for other in firsts if other.policy == run.policy]
        keys = list(_differing(alike))
        words = [f'{_short(key, keys)}={shown(run.options.get(key))}' for key in keys]
        told = len(keys) <= MOST_WORDS
        policy = [run.policy] if len(set(policies)) > 1 or not words else []
        labels.append(', '.join([*policy, *words]) if told else run.name)
    return labels if len(set(labels)) == len(labels) else [run.name for run in firsts]


def _short(key: str, others: Sequence[str]) -> str:
    """Returns the end of a dotted key that is enough to tell it from others."""
    parts = key.split('.')
    for count in range(1, len(parts)):
        end = '.'.join(parts[-count:])
        if sum(other == end or other.endswith(f'.{end}') for other in others) == 1:
            return end
    return key


def shown(value: Any) -> str:
    """Returns a value of a config as a short text."""
    text = f'{value:g}' if isinstance(value, float) else value_text(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + '...'


def value_text(value: Any) -> str:
    """Returns a value of a config as text; a power of ten that means "no limit" is written as one."""
    if type(value) is int and SHORTENED <= abs(value) <= LARGEST and value == float(f'{value:g}'):
        return f'{value:g}'
    return value if isinstance(value, str) else json.dumps(value, default=str)


def has_metric(run: RunFiles, tag: str) -> bool:
    """Whether a run has values of a metric."""
    return tag in run.metrics.tags


def default_metric(groups: Sequence[Group]) -> str:
    """Returns the metric to show if none is asked for."""
    tags = [run.score_tag for group in groups for run in group.runs if run.metrics.tags]
    return tags[0] if tags else SCORE
