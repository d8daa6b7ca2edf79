"""AWAC: its losses by hand, and weights that sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import BOX, apart, random_rows, small


def made(**learn: Any) -> Any:
    return apart(small('awac', BOX, learn=learn))


def drawn(policy: Any, obs: Any, noise: Any) -> np.ndarray:
    mean, log_std = (part.numpy().astype(float) for part in policy.model.actor(obs))
    return np.clip(mean + np.exp(log_std) * noise.numpy(), -1, 1).astype(np.float32)


def test_the_losses_are_those_of_the_paper() -> None:
    policy = made(temperature=0.5)
    data = random_rows(6, actions=None)
    rows, model = policy.columns(data), policy.model
    obs, next_obs, action = rows['obs'], rows['next_obs'], rows['action']
    with torch.no_grad():
        next_action = torch.from_numpy(drawn(policy, next_obs, rows['next_noise']))
        next_value = (
            policy.update.targets.network['critic'](next_obs, next_action).numpy().astype(float).min(0)
        )
        value = model.critic(obs, action).numpy().astype(float)
        usual = model.critic(obs, torch.from_numpy(drawn(policy, obs, rows['noise']))).numpy().min(0)
        mean, log_std = (part.numpy().astype(float) for part in model.actor(obs))
    target = data['reward'] + 0.99 * ~data['terminated'] * next_value
    weight = np.exp((value.min(0) - usual) / 0.5)
    error = (data['action'] - mean) / np.exp(log_std)
    log_prob = (-0.5 * error**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(1)
    parts = policy.update.loss(rows).parts
    assert parts['critic_loss'].item() == pytest.approx(((value - target) ** 2).mean(1).sum(), rel=1e-4)
    assert parts['actor_loss'].item() == pytest.approx(-(weight / weight.sum() * log_prob).sum(), rel=1e-4)


def test_a_high_temperature_clones() -> None:
    policy = made(temperature=1e9)
    rows = policy.columns(random_rows(6, actions=None))
    likelihood = policy.update.likelihood(rows['obs'], rows['action'])
    assert policy.update.loss(rows).parts['actor_loss'].item() == pytest.approx(
        -likelihood.mean().item(), rel=1e-5
    )


def test_the_actor_does_not_move_the_critics() -> None:
    policy = made()
    loss = policy.update.loss(policy.columns(random_rows(6, actions=None)))
    parameters = list(policy.model.critic.parameters())
    found = torch.autograd.grad(loss.parts['actor_loss'], parameters, allow_unused=True)
    assert all(gradient is None for gradient in found)
