"""ReBRAC: its two losses by hand, and the next recorded action of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import BOX, apart, random_rows, small

from rlframe.data import Batch
from rlframe.data.dataset import open_data
from rlframe.data.episodes import with_next_action
from rlframe.errors import ConfigError


def made(**learn: Any) -> Any:
    return apart(small('rebrac', BOX, learn=learn))


def test_the_next_action_is_that_of_the_row_below_in_the_same_episode() -> None:
    columns = Batch(
        obs=np.zeros((7, 1), np.float32),
        action=np.arange(7),
        terminated=np.array([0, 0, 1, 0, 0, 0, 0], bool),
        truncated=np.zeros(7, bool),
        episode=np.array([0, 0, 0, 1, 1, 2, 2]),
    )
    found = with_next_action(open_data(columns)).rows
    assert found is not None and found['next_action'].tolist() == [1, 2, 2, 4, 4, 6, 6]
    with pytest.raises(ConfigError, match='without an order of time'):
        with_next_action(open_data([(0, 1)]))


def test_the_losses_are_those_of_the_paper() -> None:
    policy = made(actor_beta=0.3, critic_beta=0.7)
    following = np.random.default_rng(3).uniform(-1, 1, (6, 2)).astype(np.float32)
    data = random_rows(6, actions=None, next_action=following)
    rows, model, target = policy.columns(data), policy.model, policy.update.targets.network
    with torch.no_grad():
        noise = np.clip(rows['next_noise'].numpy() * 0.2, -0.5, 0.5)
        action = np.clip(target['actor'](rows['next_obs']).numpy() + noise, -1, 1)
        next_value = target['critic'](rows['next_obs'], torch.from_numpy(action)).numpy().astype(float).min(0)
        value = model.critic(rows['obs'], rows['action']).numpy().astype(float)
        best = model.actor(rows['obs'])
        gain = model.critic(rows['obs'], best).numpy().astype(float).min(0)
    next_value -= 0.7 * ((action - following) ** 2).sum(1)
    wanted = data['reward'] + 0.99 * ~data['terminated'] * next_value
    assert policy.update.critic_loss(rows).value.item() == pytest.approx(
        ((value - wanted) ** 2).mean(1).sum(), rel=1e-5
    )
    distance = ((best.numpy().astype(float) - data['action']) ** 2).sum(1).mean()
    wanted = 0.3 * distance - gain.mean() / np.abs(gain).mean()
    assert policy.update.actor_loss(rows).value.item() == pytest.approx(wanted, rel=1e-5)


def test_rows_without_a_next_action_have_no_penalty() -> None:
    policy = made(critic_beta=5.0)
    free = made(critic_beta=0.0)
    data = random_rows(6, actions=None)
    one = policy.update.critic_loss(policy.columns(data)).value
    zeros = np.zeros((6, 2), np.float32)
    assert one == free.update.critic_loss(free.columns(data.replace(next_action=zeros))).value
