"""IQL: its three losses by hand, and that values of states lie between the mean and the largest recorded value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import BOX, apart, random_rows, small


def made(**learn: Any) -> Any:
    return apart(small('iql', BOX, learn=learn))


def test_the_losses_are_those_of_the_paper() -> None:
    tau, beta, most = 0.9, 2.0, 1.5
    policy = made(expectile=tau, beta=beta, max_weight=most)
    data = random_rows(6, actions=None)
    rows, model = policy.columns(data), policy.model
    with torch.no_grad():
        obs, action, next_obs = (torch.from_numpy(data[name]) for name in ('obs', 'action', 'next_obs'))
        best = policy.update.targets.network['critic'](obs, action).numpy().astype(float).min(0)
        value, next_value = (model.value(part).numpy().astype(float) for part in (obs, next_obs))
        critics = model.critic(obs, action).numpy().astype(float)
        mean, log_std = (part.numpy().astype(float) for part in model.actor(obs))
    u = best - value
    with torch.no_grad():  # so that there are advantages of both signs
        last = [part for part in model.value.modules() if isinstance(part, torch.nn.Linear)][-1]
        last.bias += float(np.median(u))
    value, next_value, u = value + np.median(u), next_value + np.median(u), u - np.median(u)
    assert u.min() < 0 < u.max()
    value_loss = np.mean(np.abs(tau - (u < 0)) * u**2)
    target = data['reward'] + 0.99 * ~data['terminated'] * next_value
    critic_loss = ((critics - target) ** 2).mean(1).sum()
    log_prob = (
        -0.5 * ((data['action'] - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    ).sum(1)
    actor_loss = -np.mean(np.minimum(np.exp(beta * u), most) * log_prob)
    loss = policy.update.loss(rows)
    for name, wanted in (('value', value_loss), ('critic', critic_loss), ('actor', actor_loss)):
        assert loss.parts[f'{name}_loss'].item() == pytest.approx(wanted, rel=1e-5), name
    assert loss.value.item() == pytest.approx(value_loss + critic_loss + actor_loss, rel=1e-5)


def test_no_loss_moves_what_another_one_trains() -> None:
    policy = made()
    loss = policy.update.loss(policy.columns(random_rows(6, actions=None)))
    own = {'value_loss': 'value', 'critic_loss': 'critic', 'actor_loss': 'actor'}
    for name, part in loss.parts.items():
        for other in own.values():
            parameters = list(getattr(policy.model, other).parameters())
            found = torch.autograd.grad(part, parameters, retain_graph=True, allow_unused=True)
            assert any(g is not None and g.any() for g in found) == (other == own[name]), (name, other)


def test_the_expectile_of_two_recorded_values_leans_to_the_larger_one() -> None:
    tau, values = 0.8, np.array([0.0, 1.0])
    grid = np.linspace(0, 1, 10_001)
    u = values[:, None] - grid
    least = grid[(np.abs(tau - (u < 0)) * u**2).sum(0).argmin()]
    assert least == pytest.approx(tau, abs=1e-3)


def test_without_weight_the_actor_clones() -> None:
    policy = made(beta=0.0)
    rows = policy.columns(random_rows(6, actions=None))
    likelihood = policy.update.likelihood(rows['obs'], rows['action'])
    assert policy.update.loss(rows).parts['actor_loss'].item() == pytest.approx(-likelihood.mean().item())
