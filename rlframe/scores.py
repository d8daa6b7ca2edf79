"""Numbers as people read them: scores, counts and durations; interquartile means, and 95 % intervals of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
FEW = {1: 12.70620474, 2: 4.30265273, 3: 3.18244631, 4: 2.77644511}
"""97.5 % quantiles of Student's t distribution for few degrees of freedom."""

ROUNDING = 1e-10
"""Relative error of a return that is only rounding: sums of float64 over a million rewards stay below it."""


def reaches(score: float, goal: float) -> bool:
    """Whether a score is at least a goal, or less only by rounding: nine rewards of 0.1 reach 0.9."""
    return score >= goal or math.isclose(score, goal, rel_tol=ROUNDING, abs_tol=1e-12)


def stop_value_problem(value: Any) -> str:
    """Returns a description of valid stop values if this is none, else an empty string."""
    return "a number, 'never' or None" if isinstance(value, str) and value != 'never' else ''


def goal_of(stop_value: Any) -> Any:
    """Returns the score that ends training; None if ``stop_value`` is None or ``'never'``."""
    return None if stop_value == 'never' else stop_value


def exact_text(value: float) -> str:
    """Returns a number with six significant digits, and all digits of a whole one."""
    return f'{int(value):,}' if math.isfinite(value) and value == int(value) else f'{value:g}'


def number_text(value: float) -> str:
    """Returns a number with three significant digits, four from 100 on, and whole ones from 1000 on.

    So that 0.968, -0.11, 475, 498.4 and 12,346 are written like this.
    """
    value = float(value)
    size = abs(value)
    if not 99.95 <= size < 1e15:
        return f'{value + 0.0:.3g}'  # minus zero becomes zero
    return f'{value:,.0f}' if size >= 999.95 else f'{value:.1f}'.removesuffix('.0')


def clock_text(seconds: float) -> str:
    """Returns a duration as ``minutes:seconds`` or ``hours:minutes:seconds``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{rest:02}' if hours else f'{minutes}:{rest:02}'


def duration_text(seconds: float) -> str:
    """Returns a duration with its unit, such as ``12 s``, ``4:05 min`` or ``2:04:05 h``; ``-`` if it is not finite."""
    if not math.isfinite(seconds):
        return '-'
    if seconds < 100:
        return f'{seconds:.3g} s' if seconds >= 0.01 else '0 s'
    return f'{clock_text(round(seconds))} {"h" if round(seconds) >= 3600 else "min"}'


class Interval(NamedTuple):
    """Ends of a 95 % interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f'{number_text(self.low)} to {number_text(self.high)}'


def mean_interval(
    mean: float, std: float, count: int, low: float = -math.inf, high: float = math.inf
) -> Interval | None:
    """Returns the 95 % interval of a mean by Student's t distribution; None if there are fewer than two values.

    It is cut to the range of the values: returns have bounds, such as 0 to 500, which that distribution does not know.

    Args:
        mean: Mean of the values.
        std: Standard deviation of the values themselves, as ``numpy.std`` returns it by default.
        count: Number of values.
        low: The smallest value.
        high: The largest value.
    """
    if count < 2 or not math.isfinite(mean + std):
        return None
    half = t_quantile(count - 1) * std / math.sqrt(count - 1)
    return Interval(max(mean - half, low), min(mean + half, high))


def interval_of(values: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the mean of values; None if there are fewer than two."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / count)
    return mean_interval(mean, std, count, min(values), max(values))


def interquartile_mean(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the mean of the middle half: a quarter of the scores, rounded down, is cut off at either end.

    With fewer than 4 scores, this is the mean.

    Args:
        scores: Scores along the last axis. float [..., K], K >= 1.

    Returns:
        float64 [...].

    Source:
        Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice (2021), section 4.3.
    """
    ordered = np.sort(np.asarray(scores, float), axis=-1)
    cut = ordered.shape[-1] // 4
    middle: np.ndarray[Any, Any] = ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)
    return middle


def t_quantile(freedom: int) -> float:
    """Returns the 97.5 % quantile of Student's t distribution.

    Args:
        freedom: Degrees of freedom, >= 1.

    Source:
        Abramowitz & Stegun, Handbook of Mathematical Functions (1964), 26.7.5; its expansion is too coarse for few degrees.
    """
    if freedom in FEW:
        return FEW[freedom]
    n = min(float(freedom), 1e15)  # more do not change the last bit, and their powers overflow
    return (
        Z
        + (Z**3 + Z) / (4 * n)
        + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * n**2)
        + (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * n**3)
        + (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / (92160 * n**4)
    )
