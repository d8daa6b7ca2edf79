"""DDPG and TD3 choose by scores, and learn from the scores and the parameters that they acted by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_toys import OBS, apart, random_rows, small
from test_pdqn import HYBRID, MASKED

from rlframe.data import EnvSpec
from rlframe.data.observation import zero_obs

KINDS = pytest.mark.parametrize('kind', ['ddpg', 'td3'])


@KINDS
def test_the_choice_is_the_allowed_one_of_the_largest_score(kind: str) -> None:
    policy, rows = small(kind, MASKED), zero_obs(MASKED.observation_space, 200)
    rng = np.random.default_rng(0)
    rows['observation'], rows['action_mask'] = rng.normal(size=(200, 3)), rng.integers(0, 2, (200, 3))
    rows['action_mask'][:, 1] = 1
    with torch.no_grad():
        output = policy.model.actor(policy.tensor(rows)).numpy()
    choice = np.where(rows['action_mask'], output[:, :3], -np.inf).argmax(1)
    for action in (
        policy.eval_mode.forward(rows, np.arange(200))['action'],
        policy.collect_mode.forward(rows, np.arange(200), noise_sigma=0.0)['action'],
    ):
        np.testing.assert_array_equal(action[:, 2], choice + 5)
        np.testing.assert_allclose(action[:, :2], 1 + 2 * output[:, 3:], rtol=1e-5)  # of the Box from -1 to 3
    assert len(set(choice)) > 1


@KINDS
def test_rows_have_the_scores_that_were_acted_by_and_those_of_others_1_and_minus_1(kind: str) -> None:
    policy, obs = small(kind, HYBRID), np.zeros((3, 3), np.float32)

    class Step:
        obs, reward = np.zeros((3, 3), np.float32), np.zeros(3)
        terminated = truncated = np.zeros(3, bool)

    output = policy.forward_collect(obs, np.arange(3), noise_sigma=0.3)
    taken: Any = policy.process_transition(obs, output, Step)['action']  # type: ignore[arg-type]
    assert taken.shape == (3, 5) and np.abs(taken).max() <= 1
    np.testing.assert_array_equal(taken[:, :3].argmax(1), output['action'][:, 2] - 5)
    drawn = policy.random_collect_mode(np.random.default_rng(0)).forward(obs, np.arange(3))
    taken = policy.process_transition(obs, drawn, Step)['action']  # type: ignore[arg-type]
    np.testing.assert_array_equal(taken[:, :3].max(1), 1)
    np.testing.assert_array_equal(taken[:, :3].sum(1), -1)
    np.testing.assert_allclose(taken[:, 3:], (drawn['action'][:, :2] - 1) / 2, atol=1e-6)


def test_critics_value_scores_and_parameters_together() -> None:
    policy = apart(small('ddpg', HYBRID, discount_factor=0.9), 0.3)
    action = np.random.default_rng(2).uniform(-1, 1, (6, 5)).astype(np.float32)
    data = random_rows(6).replace(action=action)
    rows, target = policy.columns(data), policy.update.targets.network
    with torch.no_grad():
        next_value = target['critic'](rows['next_obs'], target['actor'](rows['next_obs']))[0].numpy()
        value = policy.model.critic(rows['obs'], torch.from_numpy(action))[0].numpy()
        raised = policy.model.critic(rows['obs'], policy.model.actor(rows['obs'])).mean().item()
    wanted = data['reward'] + 0.9 * (1 - data['terminated']) * next_value
    loss = policy.update.critic_loss(rows).value.item()
    np.testing.assert_allclose(loss, ((wanted - value) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(policy.update.actor_loss(rows).value.item(), -raised, rtol=1e-5)


@pytest.mark.parametrize('action', [spaces.Box(-2, 6, (2,), np.float32), HYBRID.action_space])
def test_random_actions_are_uniform(action: Any) -> None:
    policy = small('ddpg', EnvSpec(OBS, action))
    obs = np.zeros((4000, 3), np.float32)
    drawn = policy.collect_mode.forward(obs, np.arange(4000), noise_sigma=0.0, eps=1.0)['action']
    low, high = (-2, 6) if isinstance(action, spaces.Box) else (-1, 3)
    np.testing.assert_allclose(drawn[:, :2].mean(0), (low + high) / 2, atol=0.2)
    np.testing.assert_allclose(drawn[:, :2].std(0), (high - low) / np.sqrt(12), rtol=0.05)
    if not isinstance(action, spaces.Box):
        assert np.bincount(drawn[:, 2].astype(int) - 5).min() > 1200
    half = policy.collect_mode.forward(obs, np.arange(4000), noise_sigma=0.0, eps=0.5)['action']
    best = policy.eval_mode.forward(obs[:1], np.arange(1))['action'][0]
    assert abs(np.isclose(half, best).all(1).mean() - 0.5) < 0.05
