"""PPO without a critic clips ratios, weighs them by the returns of episodes, and learns from each row several times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from policy_toys import random_block, small


def made(**learn: Any) -> Any:
    return small('ppo_pg', learn=learn, collect={'discount_factor': 0.5})


@pytest.mark.parametrize('norm', [True, False])
def test_the_loss_is_the_clipped_objective_with_returns_for_advantages(norm: bool) -> None:
    policy = made(return_norm=norm, entropy_weight=0.1, clip_ratio=0.3)
    data = policy.get_train_sample(random_block(seed=1))
    rows = policy.columns(data)
    logit = policy.model(rows['obs']).detach().double().numpy()
    probs = np.exp(logit) / np.exp(logit).sum(1, keepdims=True)
    ratio = probs[np.arange(len(data)), data['action']] / np.exp(data['log_prob'])
    assert (np.abs(ratio - 1) > 0.3).any() and (np.abs(ratio - 1) < 0.3).any()
    return_ = data['return_'].astype(float)
    return_ = (return_ - return_.mean()) / return_.std() if norm else return_
    policy_loss = -np.minimum(ratio * return_, ratio.clip(0.7, 1.3) * return_).mean()
    wanted = policy_loss + 0.1 * (probs * np.log(probs)).sum(1).mean()
    loss = policy.update.loss(rows)
    assert float(loss.value.detach()) == pytest.approx(wanted, rel=1e-4)
    assert float(loss.metrics['clip_fraction']) == pytest.approx((np.abs(ratio - 1) > 0.3).mean())


def test_log_probabilities_are_those_of_the_policy_that_acted() -> None:
    block = random_block(seed=1, ragged=True)
    samples = made().get_train_sample(block)
    logit, real = block['logit'].astype(float), block['mask']
    log_prob = logit - np.log(np.exp(logit).sum(-1, keepdims=True))
    wanted = np.take_along_axis(log_prob, block['action'][..., None], -1)[..., 0]
    np.testing.assert_allclose(samples['log_prob'], wanted[real], rtol=1e-5)


def test_each_row_is_learned_from_once_an_epoch_in_an_order_of_its_own() -> None:
    policy, seen = made(epoch_per_collect=3, batch_size=8), []
    policy.train_step = lambda rows: seen.append(rows['return_'].tolist()) or {}
    data = policy.get_train_sample(random_block(seed=1))
    for update in policy.forward_learn(data):
        update()
    assert [len(batch) for batch in seen] == [8, 8, 5] * 3
    epochs = [[*seen[i], *seen[i + 1], *seen[i + 2]] for i in (0, 3, 6)]
    assert all(sorted(epoch) == sorted(data['return_'].tolist()) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
