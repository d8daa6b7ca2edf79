"""Bounds of continuous actions."""

import numpy as np
import pytest
from gymnasium.spaces import Box

from rlframe.data.timestep import EnvSpec
from rlframe.errors import IncompatibleError
from rlframe.policy.bounds import ActionBounds


def bounds_of(low, high):
    space = Box(np.array(low, np.float32), np.array(high, np.float32))
    return ActionBounds(EnvSpec(Box(-1, 1, (2,)), space, name='Env'))


def test_the_ends_of_the_unit_interval_are_the_bounds():
    bounds = bounds_of([-2, 0], [2, 10])
    assert bounds.to_env(np.array([[-1, -1], [1, 1], [0, 0]])).tolist() == [[-2, 0], [2, 10], [0, 5]]
    assert bounds.to_env(np.array([[-7, 7]])).tolist() == [[-2, 10]]
    assert bounds.to_env(np.zeros((1, 2))).dtype == np.float32


def test_to_unit_is_the_inverse():
    bounds = bounds_of([-2, 0.5], [3, 10])
    action = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    np.testing.assert_allclose(bounds.to_unit(bounds.to_env(action)), action, atol=1e-6)


@pytest.mark.parametrize('high', [np.inf, np.finfo(np.float32).max])
def test_a_dimension_without_finite_bounds_is_named(high):
    low = -high
    with pytest.raises(IncompatibleError, match=r'action dimension \[1\].*\n?.*RescaleAction'):
        bounds_of([-1, low], [1, high])
