"""Soft Q-learning values the next state, and explores, by the softmax of action values; SQN by two networks' lower ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import PLAIN, apart, random_rows, small


def made(kind: str, spec: Any = PLAIN, **learn: Any) -> Any:
    return apart(small(kind, spec, discount_factor=0.9, learn=learn), 1.5)


@pytest.mark.parametrize('kind', ['sql', 'sqn'])
def test_target_is_the_reward_and_the_soft_value_of_the_next_state(kind: str) -> None:
    policy = made(kind, alpha=0.5)
    rows, target = policy.columns(random_rows(8, actions=4)), policy.update.targets.network
    with torch.no_grad():
        value = target(rows['next_obs'])
        if kind == 'sqn':
            torch.testing.assert_close(value, torch.minimum(*target.both(rows['next_obs'])))
        found = policy.update.target(rows)
    soft = 0.5 * (value.double() / 0.5).exp().sum(1).log().float()
    torch.testing.assert_close(found, rows['reward'] + 0.9 * ~rows['terminated'] * soft)


def test_exploration_draws_from_the_softmax_policy_and_evaluation_takes_its_best_action() -> None:
    policy, obs = made('sql', alpha=0.5), np.repeat(np.float32([[0.3, -0.2, 0.9]]), 4000, 0)
    actions = policy.collect_mode.forward(obs, np.arange(4000), eps=0.0)['action']
    wanted = (policy.q_value(obs[:1])[0] / 0.5).softmax(0).numpy()
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 4000, wanted, atol=0.03)
    assert (policy.eval_mode.forward(obs[:1], np.arange(1))['action'] == wanted.argmax()).all()
