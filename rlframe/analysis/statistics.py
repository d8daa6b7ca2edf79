"""Bootstrap intervals over runs.

Source:
    Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (NeurIPS 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlframe.scores import interquartile_mean

RESAMPLES = 2_000
"""Resamples of a bootstrap. The generator is seeded, so that the same runs give the same interval."""
LEVEL = 0.95
"""Level of the intervals."""
Array = np.ndarray[Any, Any]


class Estimate(NamedTuple):
    """A statistic of several runs, with its interval."""

    value: float
    low: float
    high: float
    runs: int
    """Number of runs. One run has no interval: ``low`` and ``high`` are its value."""


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
    values = np.stack([statistic(scores[..., index]) for index in chosen])
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail], axis=0)
    return low, high


def estimate(scores: list[float]) -> Estimate:
    """Returns the interquartile mean of runs with its bootstrap interval."""
    array = np.asarray(scores, float)
    value = float(interquartile_mean(array))
    low, high = bootstrap(array, interquartile_mean) if len(scores) > 1 else (value, value)
    return Estimate(value, float(low), float(high), len(scores))
