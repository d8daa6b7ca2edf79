"""D4PG's critic learns the projected distribution of n-step returns, and its actor raises the mean of that critic."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from policy_toys import BOX, apart, random_rows, small

from rlframe.data import Batch

SIZE, LOW, HIGH, ATOMS = 6, -2.0, 3.0, 6
SUPPORT = np.linspace(LOW, HIGH, ATOMS)
IS = np.array([1, 0.5, 0.25, 1, 0.1, 0.7], np.float32)
VALUE_GAMMA = np.array([0.9, 0.81, 0.729, 0.9, 0.5, 0.2], np.float32)


def made(**more: Any) -> Any:
    return apart(small('d4pg', BOX, model={'v_min': LOW, 'v_max': HIGH, 'n_atom': ATOMS} | more))


def batch() -> Batch:
    return random_rows(SIZE, actions=None, IS=IS, value_gamma=VALUE_GAMMA)


def softmax(logit: Any) -> Any:
    exponential = np.exp(np.asarray(logit.detach(), np.float64))
    return exponential / exponential.sum(-1, keepdims=True)


def targets(policy: Any, data: Batch) -> np.ndarray:
    """Algorithm 1 of Bellemare et al. for each row, with the n-step rewards and discounts of the batch, [B, M]."""
    network, next_obs = policy.update.targets.network, torch.from_numpy(data['next_obs'])
    follows = softmax(network['critic'](next_obs, network['actor'](next_obs))[0])
    wanted = np.zeros((SIZE, ATOMS))
    for i in range(SIZE):
        gamma = 0.0 if data['terminated'][i] else VALUE_GAMMA[i]
        for probability, atom in zip(follows[i], SUPPORT, strict=True):
            place = (np.clip(data['reward'][i] + gamma * atom, LOW, HIGH) - LOW) / (SUPPORT[1] - SUPPORT[0])
            below = min(int(place), ATOMS - 2)
            wanted[i, below] += probability * (1 - (place - below))
            wanted[i, below + 1] += probability * (place - below)
    return wanted


def test_critic_loss_is_the_cross_entropy_to_the_projected_n_step_distribution() -> None:
    policy, data = made(), batch()
    rows, wanted = policy.columns(data), targets(policy, data)
    own = np.log(softmax(policy.model.critic(rows['obs'], rows['action'])[0]))
    loss = policy.update.critic_loss(rows)
    np.testing.assert_allclose(loss.value.item(), -(IS * (wanted * own).sum(1)).mean(), rtol=1e-5)
    divergence = (wanted * (np.log(wanted.clip(1e-30)) - own)).sum(1)
    np.testing.assert_allclose(loss.error.numpy(), divergence, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(loss.metrics['target_q_value'].item(), (wanted @ SUPPORT).mean(), rtol=1e-4)


def test_actor_loss_is_minus_the_mean_return_of_its_actions() -> None:
    policy, rows = made(), made().columns(batch())
    logit = policy.model.critic(rows['obs'], policy.model.actor(rows['obs']))[0]
    loss = policy.update.actor_loss(rows)
    np.testing.assert_allclose(loss.value.item(), -(softmax(logit) @ SUPPORT).mean(), rtol=1e-5)
    # by the chain rule: through the derivative of the mean by the action
    action = policy.model.actor(rows['obs'])
    mean = (policy.model.critic(rows['obs'], action)[0].softmax(1) @ policy.update.support).mean()
    (slope,) = torch.autograd.grad(mean, action, retain_graph=True)
    actor = list(policy.model.actor.parameters())
    for one, other in zip(
        torch.autograd.grad(loss.value, actor),
        torch.autograd.grad((-slope * action).sum(), actor),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_of_two_critics_the_target_is_the_whole_distribution_of_the_lower_mean() -> None:
    policy, data = made(twin_critic=True), batch()
    rows, network = policy.columns(data), policy.update.targets.network
    logit = network['critic'](rows['next_obs'], network['actor'](rows['next_obs']))
    mean = softmax(logit) @ SUPPORT
    lower = mean.argmin(0)
    assert set(lower.tolist()) == {0, 1}, 'each is the lower one somewhere'
    found = policy.update.critic_loss(rows).metrics['target_q_value'].item()
    ends = data['terminated']
    # projection keeps the mean of what stays between the ends, so no row may leave them
    clipped = np.clip(data['reward'][:, None] + np.where(ends, 0, VALUE_GAMMA)[:, None] * SUPPORT, LOW, HIGH)
    own = softmax(logit)[lower, np.arange(SIZE)]
    np.testing.assert_allclose(found, (own * clipped).sum(1).mean(), rtol=1e-4)
