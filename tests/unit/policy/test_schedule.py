"""Schedules and exploration noise: their values, their states, and what is refused."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from rlframe.policy.parts.actions import ExplorationNoise
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


ENVS = np.arange(2000)


def noise_of(correlation: float, seed: int = 0, size: int = 3) -> ExplorationNoise:
    return ExplorationNoise(size, correlation, np.random.default_rng(seed))


@pytest.mark.parametrize('correlation', [0.0, 0.9])
def test_every_step_is_standard_normal_and_correlated_as_asked(correlation: float) -> None:
    noise = noise_of(correlation)
    steps = np.stack([noise.draw(ENVS) for _ in range(6)]).astype(np.float64)
    assert steps.shape == (6, 2000, 3) and noise.draw(ENVS).dtype == np.float32
    for step in steps:
        assert abs(step.mean()) < 0.06 and abs(step.std() - 1) < 0.06
    for lag in (1, 2, 5):
        found = np.mean(steps[:-lag] * steps[lag:])
        assert found == pytest.approx(correlation**lag, abs=0.06)
    assert abs(np.mean(steps[..., 0] * steps[..., 1])) < 0.06, 'dimensions are independent'


@pytest.mark.parametrize('correlation', [0.0, 0.9])
def test_continues_from_its_state(correlation: float) -> None:
    noise, other = noise_of(correlation), noise_of(correlation, seed=1)
    noise.draw(np.array([0, 3]))
    state = copy.deepcopy(noise.state_dict())
    other._rng = copy.deepcopy(noise._rng)
    other.load_state_dict(state)
    noise.draw(np.array([3, 1]))  # must not reach into the state
    other.load_state_dict(state)
    other._rng = np.random.default_rng(5)
    one = other.draw(np.array([0, 3]))
    other.load_state_dict(state)
    other._rng = np.random.default_rng(5)
    np.testing.assert_array_equal(one, other.draw(np.array([0, 3])))
