"""Exploration noise: standard normal whatever its correlation, anew with each episode, and it continues from its state."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from rlframe.policy.parts.actions import ExplorationNoise

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
