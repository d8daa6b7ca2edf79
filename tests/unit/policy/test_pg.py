"""PG weighs log-probabilities by the discounted returns of episodes, and learns from each row of a round once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import small

from rlframe.data import Batch


def made(**learn: Any) -> Any:
    return small('pg', learn=learn, collect={'discount_factor': 0.5})


def block() -> Batch:
    """Returns four steps of two envs: an episode that ends and one that a limit cuts, and one with a missing row."""
    rng = np.random.default_rng(0)
    ends = np.zeros((4, 2), bool)
    ends[1, 0] = True
    mask = np.array([[True, True]] * 3 + [[True, False]])
    return Batch(
        {
            'obs': rng.normal(size=(4, 2, 3)).astype(np.float32),
            'action': rng.integers(4, size=(4, 2)),
            'reward': np.float32([[1, 1], [2, 1], [4, 1], [8, 0]]),
            'terminated': ends,
            'truncated': np.zeros_like(ends),
            'mask': mask,
        }
    )


def test_returns_are_sums_to_the_end_of_the_episode_or_of_the_round() -> None:
    samples = made().get_train_sample(block())
    assert samples['return_'].tolist() == [2.0, 1.75, 2.0, 1.5, 8.0, 1.0, 8.0]


@pytest.mark.parametrize('norm', [True, False])
def test_loss_is_the_policy_gradient_and_the_entropy(norm: bool) -> None:
    policy = made(return_norm=norm, entropy_weight=0.1)
    rows = policy.columns(policy.get_train_sample(block()))
    log_prob = policy.model(rows['obs']).log_softmax(1)
    return_ = rows['return_'].numpy()
    return_ = (return_ - return_.mean()) / return_.std() if norm else return_
    chosen = log_prob[torch.arange(7), rows['action'].long()]
    entropy = -(log_prob.exp() * log_prob).sum(1).mean()
    wanted = -(chosen * torch.as_tensor(return_)).mean() - 0.1 * entropy
    torch.testing.assert_close(policy.update.loss(rows).value, wanted)


@pytest.mark.parametrize(('size', 'updates'), [(None, 1), (3, 3)])
def test_each_row_of_a_round_is_learned_from_once(size: int | None, updates: int) -> None:
    policy = made(batch_size=size)
    assert len([step() for step in policy.forward_learn(policy.get_train_sample(block()))]) == updates
