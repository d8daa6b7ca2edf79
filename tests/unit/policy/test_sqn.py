"""SQN learns its temperature so that the softmax policy keeps its entropy; each of its networks learns the same target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import MASKED, PLAIN, random_rows
from test_sql import made


def rows_of(policy: Any, spec: Any) -> Any:
    data = random_rows(8, actions=2)
    if spec is MASKED:
        seen = np.zeros(8, [('action_mask', np.int8, 4), ('observation', np.float32, 3)])
        seen['observation'], seen['action_mask'] = data['obs'], [1, 1, 0, 0]
        data = data.replace(obs=seen, next_obs=seen)
    return policy.columns(data)


@pytest.mark.parametrize(('spec', 'actions', 'target'), [(PLAIN, 4, 1.0), (MASKED, 2, 0.5)])
def test_temperature_falls_while_the_entropy_is_above_its_target(
    spec: Any, actions: int, target: float
) -> None:
    policy = made('sqn', spec, target_entropy=1.0, init_alpha=0.4)
    rows = rows_of(policy, spec)
    loss = policy.update.alpha_loss(rows)
    with torch.no_grad():
        prob = (policy.model(rows['obs'])[:, :actions] / 0.4).softmax(1)
    entropy = float(-(prob * prob.log()).sum(1).mean())
    assert float(loss.metrics['entropy']) == pytest.approx(entropy, rel=1e-4)
    assert loss.value.item() == pytest.approx(math.log(0.4) * (entropy - target), rel=1e-3)


def test_a_temperature_that_is_given_stays_and_one_that_is_learned_moves() -> None:
    for alpha, moves in ((0.3, False), ('auto', True)):
        policy = made('sqn', alpha=alpha)
        before = policy.update.temperature()
        policy.train_step(rows_of(policy, PLAIN))
        assert bool(policy.update.temperature() != before) is moves


def test_both_networks_learn_the_same_target() -> None:
    policy = made('sqn')
    rows = rows_of(policy, PLAIN)
    with torch.no_grad():
        target = policy.update.target(rows)
        losses = [
            (critic(rows['obs'])[torch.arange(8), rows['action'].long()] - target).square().mean()
            for critic in policy.model.critics
        ]
    assert policy.update.loss(rows).value.item() == pytest.approx(float(sum(losses)), rel=1e-5)
