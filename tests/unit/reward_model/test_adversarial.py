"""Discriminators and costs: their losses by hand, and that what looks like a demonstration earns more."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_toys import PLAIN, random_rows

from rlframe.data import Batch
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.adversarial import reward_of
from rlframe.reward_model.gail import discriminator_loss, gradient_penalty
from rlframe.reward_model.gcl import cost_loss, log_uniform


def made(kind: str, rows: Batch, spec: Any = PLAIN, **options: Any) -> Any:
    options = {'batch_size': 32, 'hidden_size_list': [16], **options}
    model = REWARD_MODEL_REGISTRY.get(kind)({'data': rows, **options}, spec, seed=0)
    model.likelihood = lambda obs, action: np.full(len(obs), np.log(0.25), np.float32)
    return model


def one_sided(action: int, size: int = 64) -> Batch:
    """Returns rows that all take one action."""
    rows = random_rows(size)
    return rows.replace(action=np.full(size, action, np.uint8))


def test_the_loss_of_a_discriminator_is_its_cross_entropy() -> None:
    agent, expert = np.array([0.5, -1.0]), np.array([2.0, -0.3, 1.0])

    def probability_of_the_agent(logit: Any) -> Any:
        return 1 / (1 + np.exp(logit))

    wanted = (
        -np.log(probability_of_the_agent(agent)).mean() - np.log(1 - probability_of_the_agent(expert)).mean()
    )
    loss = discriminator_loss(torch.from_numpy(agent), torch.from_numpy(expert))
    assert loss.item() == pytest.approx(wanted)


def test_the_forms_of_a_reward_are_logarithms_of_probabilities_and_their_sum() -> None:
    logit = np.array([-3.0, 0.0, 2.0])
    prob = 1 / (1 + np.exp(logit))
    wanted = {
        'positive': -np.log(prob),
        'negative': np.log(1 - prob),
        'logit': np.log(1 - prob) - np.log(prob),
    }
    for form, values in wanted.items():
        np.testing.assert_allclose(reward_of(torch.from_numpy(logit), form), values, err_msg=form)


def test_a_gradient_of_norm_1_is_not_penalised() -> None:
    draw = np.random.default_rng(0)
    agent, expert = (torch.from_numpy(draw.normal(size=(5, 2))) for _ in range(2))
    share = torch.full((5, 1), 0.3, dtype=torch.float64)
    for slope, wanted in (([0.6, 0.8], 0.0), ([3.0, 4.0], 16.0)):
        weight = torch.tensor(slope, dtype=torch.float64)[:, None]
        penalty = gradient_penalty(lambda points, weight=weight: points @ weight, agent, expert, share)
        assert penalty.item() == pytest.approx(wanted)


def test_gradients_are_taken_between_a_row_and_a_demonstration() -> None:
    agent, expert = torch.zeros(1, 1), torch.ones(1, 1)
    penalty = gradient_penalty(lambda points: points.square(), agent, expert, torch.full((1, 1), 0.25))
    assert penalty.item() == pytest.approx((2 * 0.25 - 1) ** 2)


def test_the_loss_of_costs_weighs_samples_by_their_probability() -> None:
    expert, sampled, prob = np.array([1.0, 3.0]), np.array([0.5, 2.0, 1.0]), np.array([0.1, 0.5, 0.4])
    wanted = expert.mean() + np.log(np.mean(np.exp(-sampled) / prob))
    loss = cost_loss(*(torch.from_numpy(each) for each in (expert, sampled, np.log(prob))))
    assert loss.item() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ('space', 'wanted'),
    [
        (spaces.Discrete(4), 1 / 4),
        (spaces.MultiDiscrete([2, 3]), 1 / 6),
        (spaces.MultiBinary(3), 1 / 8),
        (spaces.Box(0, 9, (2,)), 1 / 4),
    ],
)
def test_random_actions_have_the_density_of_a_network_s_actions(space: Any, wanted: float) -> None:
    assert np.exp(log_uniform(space)) == pytest.approx(wanted)


def test_guided_cost_learning_draws_by_the_policy_or_at_random() -> None:
    model = made('gcl', random_rows(12))
    model.likelihood = lambda obs, action: np.full(len(obs), np.log(0.65), np.float32)
    assert np.exp(model.read(random_rows(3))['log_prob'].numpy()) == pytest.approx((0.65 + 0.25) / 2)


def test_the_logit_of_airl_is_a_shaped_reward_minus_the_likelihood() -> None:
    model = made('airl', random_rows(12), discount_factor=0.9)
    rows = model.read(random_rows(6, seed=1))
    with torch.no_grad():
        reward, now, later = (
            part.numpy()
            for part in (
                model.network['reward'](rows),
                model.network['shaping'](rows),
                model.network['shaping']({'obs': rows['next_obs']}),
            )
        )
        logit = model.logit(rows).numpy()
    wanted = reward + 0.9 * ~rows['terminated'].numpy() * later - now - np.log(0.25)
    np.testing.assert_allclose(logit, wanted, rtol=1e-5)


@pytest.mark.parametrize('kind', ['gail', 'airl', 'gcl'])
def test_rows_like_demonstrations_earn_more_than_those_of_the_agent(kind: str) -> None:
    model = made(kind, one_sided(3), learning_rate=1e-2, update_per_collect=100)
    model.collected(one_sided(0))
    model.learn()
    assert model.reward(one_sided(3)).min() > model.reward(one_sided(0)).max()


@pytest.mark.parametrize('kind', ['gail', 'airl', 'gcl'])
def test_a_loaded_model_learns_on_as_the_saved_one(kind: str) -> None:
    first, second = (made(kind, one_sided(3), update_per_collect=3, memory=40) for _ in range(2))
    for seed in range(3):
        first.collected(random_rows(24, seed))
        first.learn()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    rewards = []
    for model in (first, second):
        model.collected(random_rows(24, seed=9))
        model.learn()
        rewards.append(model.reward(random_rows(8, seed=10)))
    np.testing.assert_array_equal(*rewards)
