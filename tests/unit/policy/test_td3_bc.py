"""TD3+BC: the loss of its actor by hand, and what is left of it without values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import BOX, apart, random_rows, small


def made(kind: str = 'td3_bc', **learn: Any) -> Any:
    return small(kind, BOX, learn=learn)


def test_the_actor_weighs_values_by_their_mean_size_against_the_distance_to_recorded_actions() -> None:
    policy = made(alpha=1.7)
    rows = policy.columns(random_rows(6, actions=None))
    with torch.no_grad():
        action = policy.model.actor(rows['obs'])
        value = policy.model.critic(rows['obs'], action)[0].numpy().astype(float)
    error = action.numpy().astype(float) - rows['action'].numpy()
    wanted = (error**2).mean() - 1.7 * value.mean() / np.abs(value).mean()
    assert policy.update.actor_loss(rows).value.item() == pytest.approx(wanted, rel=1e-5)


def test_values_of_any_size_pull_alike() -> None:
    policy = made()
    rows = policy.columns(random_rows(6, actions=None))
    found = []
    for _ in range(2):
        loss = policy.update.actor_loss(rows).value
        found.append(torch.autograd.grad(loss, list(policy.model.actor.parameters())))
        with torch.no_grad():
            for parameter in list(policy.model.critic.nets[0].parameters())[-2:]:
                parameter *= 1000
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-6)


def test_without_weight_the_actor_clones() -> None:
    policy = made(alpha=0.0)
    rows = policy.columns(random_rows(6, actions=None))
    loss = policy.update.actor_loss(rows)
    assert loss.value.item() == pytest.approx(loss.metrics['bc_loss'].item())


def test_its_critics_learn_as_those_of_td3() -> None:
    policy, td3 = apart(made()), made('td3')
    td3.learn_mode.load_state_dict(policy.learn_mode.state_dict())
    rows = policy.columns(random_rows(6, actions=None))
    assert policy.update.critic_loss(rows).value == td3.update.critic_loss(rows).value
