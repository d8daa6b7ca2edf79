"""Schedules as data: a number, or ``dict(type=..., start=..., end=..., decay=...)`` over env steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Schedule: TypeAlias = float | dict[str, Any]
"""Type of an option that is a number or a schedule."""


def linear_decay(step: float, start: float, end: float, decay: float) -> float:
    """Linear schedule from ``start`` to ``end``, which it reaches at ``decay`` env steps and keeps."""
    return start + (end - start) * min(step / decay, 1.0)


def exp_decay(step: float, start: float, end: float, decay: float) -> float:
    """Approaches ``end`` exponentially: after ``decay`` env steps 1/e of the distance is left."""
    return end + (start - end) * math.exp(-step / decay)


def cosine_decay(step: float, start: float, end: float, decay: float) -> float:
    """Goes from ``start`` to ``end`` along half a cosine, reaching it at ``decay`` env steps.

    Source:
        Loshchilov & Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts (2017), eq. 5.
    """
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(step / decay, 1.0)))


SCHEDULES: dict[str, Callable[[float, float, float, float], float]] = {
    'linear': linear_decay,
    'exp': exp_decay,
    'cosine': cosine_decay,
}
"""The values of ``type``."""


def check_schedule(value: Any) -> str:
    """Returns a description of valid schedules if a value is invalid, else an empty string."""
    form = f'a number, or dict(type={"|".join(SCHEDULES)}, start=, end=, decay= (env steps, > 0))'
    if isinstance(value, int | float):
        return '' if math.isfinite(value) else form
    numbers = [value.get(name) for name in ('start', 'end', 'decay')]
    fine = (
        set(value) <= {'type', 'start', 'end', 'decay'}
        and value.get('type', 'linear') in [*SCHEDULES]  # which takes any value
        and all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers)
        and value['decay'] > 0
    )
    return '' if fine else form


def check_positive_schedule(value: Any) -> str:
    """Like ``check_schedule`` for a value that may never be 0 or less at its start."""
    if expected := check_schedule(value):
        return expected
    start = value if isinstance(value, int | float) else value['start']
    return '' if start > 0 else 'a number > 0, or a schedule of one'


def value_at(schedule: float | Mapping[str, Any], envstep: int) -> float:
    """Returns a schedule's value after ``envstep`` env steps."""
    if isinstance(schedule, int | float):
        return float(schedule)
    decay = SCHEDULES[schedule.get('type', 'linear')]
    return decay(envstep, schedule['start'], schedule['end'], schedule['decay'])
