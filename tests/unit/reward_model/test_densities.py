"""RED and PDEIL: densities by an independent computation, and that demonstrations earn more than other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from policy_toys import OBS, PLAIN, random_rows

from rlframe.data import Batch, EnvSpec
from rlframe.reward_model.pdeil import PDEIL, Gaussian, JointDensity
from rlframe.reward_model.red import RED

CONTINUOUS = EnvSpec(OBS, spaces.Box(-1, 1, (2,), np.float32), name='Toy-v0')


def log_normal(x: Any, mean: Any, covariance: Any) -> Any:
    """Returns the log density of a normal distribution at one point, straight from its formula."""
    apart = x - mean
    exponent = apart @ np.linalg.inv(covariance) @ apart
    return -0.5 * (exponent + np.log(np.linalg.det(2 * np.pi * covariance)))


def test_a_density_is_that_of_the_mean_and_covariance_of_its_vectors() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 3)) @ np.array(
        [[1, 0.5, 0], [0, 2, 0.3], [0, 0, 0.4]]
    )
    found = Gaussian.of(vectors, ridge=0.0).log_density(vectors[:4])
    covariance = np.cov(vectors, rowvar=False, ddof=0)
    np.testing.assert_allclose(found, [log_normal(x, vectors.mean(0), covariance) for x in vectors[:4]])


def test_numbers_that_do_not_vary_have_a_density_with_bound() -> None:
    assert np.isfinite(Gaussian.of(np.zeros((5, 2))).log_density(np.zeros((1, 2)))).all()


def test_discrete_actions_have_a_density_each() -> None:
    obs, action = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    density = JointDensity(obs, action)
    own = obs[action == 1]
    wanted = np.log(1 / 3) + Gaussian.of(own).log_density(obs[:1])
    np.testing.assert_allclose(density.log_density(obs[:1], np.array([1])), wanted)
    assert density.log_density(obs[:1], np.array([7]))[0] == -np.inf


@pytest.mark.parametrize('spec', [PLAIN, CONTINUOUS])
def test_pdeil_divides_the_density_of_a_row_by_that_of_its_state(spec: EnvSpec) -> None:
    actions = 4 if spec is PLAIN else None
    data, own, asked = (random_rows(40, seed, actions) for seed in range(3))
    model = PDEIL({'data': data, 'alpha': 0.3}, spec, seed=0)
    model.collected(own)
    model.learn()
    mean, std = data['obs'].mean(0), data['obs'].std(0)
    expert, agent, obs = ((rows['obs'] - mean) / std for rows in (data, own, asked))
    both = JointDensity(expert, data['action']).log_density(obs, asked['action'])
    states = 0.3 * np.exp(Gaussian.of(expert).log_density(obs)) + 0.7 * np.exp(
        Gaussian.of(agent).log_density(obs)
    )
    np.testing.assert_allclose(model.reward(asked), np.exp(both) / states, rtol=1e-3)


def expert_rows(size: int = 64) -> Batch:
    rows = random_rows(size)
    return rows.replace(action=np.full(size, 2, np.uint8))


def made_red(**options: Any) -> RED:
    return RED(
        {'data': expert_rows(), 'updates': 300, 'hidden_size_list': [32], 'size': 16, **options},
        PLAIN,
        seed=0,
    )


def test_red_pays_more_where_there_are_demonstrations() -> None:
    model = made_red()
    model.learn()
    paid = model.reward(expert_rows())
    assert 0.8 < paid.mean() <= 1
    assert model.reward(random_rows(64).replace(action=np.zeros(64, np.uint8))).mean() < paid.mean() - 0.2


def test_red_pays_by_the_error_and_sigma() -> None:
    model = made_red(sigma=3.0, updates=1)
    model.learn()
    rows = random_rows(8)
    np.testing.assert_allclose(model.reward(rows), np.exp(-3 * model.errors(rows)), rtol=1e-6)


def test_red_learns_once_and_a_loaded_model_has_learned() -> None:
    first, second = made_red(), made_red()
    first.learn()
    second.load_state_dict(first.state_dict())
    for model in (first, second):
        assert model.learn() == {}
    np.testing.assert_array_equal(first.reward(random_rows(8)), second.reward(random_rows(8)))
