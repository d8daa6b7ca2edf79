"""Schedules begin at their start, reach their end and are refused where they mean nothing."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import ScriptedPolicy

from rlframe.data import EnvSpec
from rlframe.policy.parts.options import check_positive_schedule, check_schedule, value_at
from rlframe.policy.parts.random_policy import random_collect_mode


def schedule(kind: str) -> dict[str, Any]:
    return dict(type=kind, start=2.0, end=1.0, decay=100)


def test_a_number_is_constant() -> None:
    assert value_at(0.3, 0) == value_at(0.3, 10**9) == 0.3 and value_at(1, 5) == 1.0


@pytest.mark.parametrize(
    ('kind', 'at_50', 'at_100', 'at_1000'),
    [
        ('linear', 1.5, 1.0, 1.0),
        ('cosine', 1.5, 1.0, 1.0),
        ('exp', 1 + math.exp(-0.5), 1 + math.exp(-1), 1 + math.exp(-10)),
    ],
)
def test_values_over_env_steps(kind: str, at_50: float, at_100: float, at_1000: float) -> None:
    values = [value_at(schedule(kind), step) for step in (0, 50, 100, 1000)]
    assert values == pytest.approx([2.0, at_50, at_100, at_1000])


def test_linear_is_the_type_where_none_is_named() -> None:
    assert value_at({'start': 2.0, 'end': 1.0, 'decay': 100}, 25) == 1.75


@pytest.mark.parametrize(
    'bad',
    [
        math.nan,
        math.inf,
        schedule('step'),
        schedule('exp') | {'decay': 0},
        schedule('exp') | {'start': 'a'},
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


@pytest.mark.parametrize(
    'space', [gymnasium.spaces.Discrete(3, start=4), gymnasium.spaces.Box(-1, 2, (2,), np.float32)]
)
def test_random_actions_cover_the_space_and_repeat_with_the_seed(space: Any) -> None:
    spec = EnvSpec(space, space)
    draws = []
    for seed in (1, 1, 2):
        mode = random_collect_mode(ScriptedPolicy().collect_mode, spec, np.random.default_rng(seed))
        draws.append(mode.forward(np.zeros((300, 3)), np.arange(300))['action'])
    assert all(space.contains(action) for action in draws[0])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()
    if hasattr(space, 'n'):
        assert set(draws[0]) == {4, 5, 6}
    else:
        assert len(np.unique(draws[0][:, 0])) > 250
