"""Schedules begin at their start, reach their end and are refused where they mean nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rlframe.policy.parts.options import check_positive_schedule, check_schedule, schedule_of


def schedule(kind: str) -> dict[str, Any]:
    return dict(type=kind, start=2.0, end=1.0, decay=100)


@pytest.mark.parametrize(
    ('kind', 'at_50', 'at_100', 'at_1000'),
    [
        ('linear', 1.5, 1.0, 1.0),
        ('cosine', 1.5, 1.0, 1.0),
        ('exp', 1 + math.exp(-0.5), 1 + math.exp(-1), 1 + math.exp(-10)),
    ],
)
def test_values_over_env_steps(kind: str, at_50: float, at_100: float, at_1000: float) -> None:
    values = [schedule_of(schedule(kind))(step) for step in (0, 50, 100, 1000)]
    assert values == pytest.approx([2.0, at_50, at_100, at_1000])


@pytest.mark.parametrize(
    'bad',
    [
        math.nan,
        schedule('step'),
        schedule('exp') | {'decay': 0},
        schedule('exp') | {'end': True},
        {'start': 1.0},
        schedule('exp') | {'rate': 3},
    ],
)
def test_what_is_no_schedule_is_told_the_form(bad: Any) -> None:
    assert 'linear|exp|cosine' in check_schedule(bad) and check_positive_schedule(bad)


def test_a_learning_rate_begins_above_0() -> None:
    assert check_schedule(0) == check_schedule(schedule('exp')) == check_positive_schedule(1e-3) == ''
    assert check_positive_schedule(0) and check_positive_schedule(schedule('exp') | {'start': 0.0})
