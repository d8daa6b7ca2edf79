"""PPG trains policy and critic apart, and distils returns into the policy in phases that leave its actions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair
from policy_toys import random_block, small
from toys import toy

from rlframe.config import compile_config
from rlframe.data import Batch
from rlframe.pipeline import SerialPipeline


def made(**learn: Any) -> Any:
    return small('ppg', learn=learn)


def moved(policy: Any) -> Any:
    """Returns the policy with a network that is sure of some actions."""
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return policy


def test_each_loss_has_a_gradient_for_its_own_network_only() -> None:
    policy = made()
    rows = policy.columns(policy.get_train_sample(random_block()))
    rows['logit'] = torch.randn(len(rows['return_']), 4)
    for name, part in policy.update.losses.items():
        loss = getattr(policy.update, name)(rows).value
        other = {'policy': policy.model.critic, 'critic': policy.model.policy}[part]
        grads = torch.autograd.grad(loss, list(other.parameters()), allow_unused=True)
        assert all(grad is None for grad in grads), name


def test_the_joint_loss_is_the_error_of_the_value_head_and_the_divergence_from_the_old_policy() -> None:
    policy = moved(made(aux_bc_weight=0.7))
    rng = np.random.default_rng(0)
    obs, old = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(5, 4))
    return_ = rng.normal(size=5)
    logit, value = (part.detach().double().numpy() for part in policy.model.policy(torch.from_numpy(obs)))
    new_probs, probs = (np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in (logit, old))
    divergence = (probs * (np.log(probs) - np.log(new_probs))).sum(1).mean()
    wanted = 0.5 * np.square(value - return_).mean() + 0.7 * divergence
    rows = {'obs': torch.from_numpy(obs), 'logit': torch.tensor(old), 'return_': torch.tensor(return_)}
    assert float(policy.update.joint_loss(rows).value.detach()) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize('value_clip', [None, 0.5])
def test_after_some_rounds_all_their_rows_are_learned_from_again(value_clip: float | None) -> None:
    policy = made(aux_freq=2, aux_train_epoch=3, batch_size=20, epoch_per_collect=2, value_clip=value_clip)
    blocks = [policy.get_train_sample(random_block(seed=seed)) for seed in range(3)]  # 21 rows each
    first, second, third = [[step() for step in policy.forward_learn(data)] for data in blocks]
    assert (len(first), len(second), len(third)) == (4, 4 + 3 * 3, 4)
    assert all('joint_loss' not in metrics and 'actor_loss' in metrics for metrics in first + third)
    assert all('joint_loss' in metrics and 'actor_loss' not in metrics for metrics in second[4:])
    assert float(second[4]['cloning_loss']) == pytest.approx(0, abs=1e-6), (
        'the old policy is that before the phase'
    )
    # the phase learns from the returns of both rounds, whatever the weights are by now
    rows = policy.auxiliary_columns(Batch.cat(blocks[:2]))
    wanted = np.concatenate([block['return_'] for block in blocks[:2]])
    np.testing.assert_allclose(rows['return_'].numpy(), wanted)


def test_a_run_that_was_interrupted_within_a_policy_phase_continues_exactly(cwd: Path) -> None:
    options = toy('ppg')
    main, create = config_pair(**options | dict(learn=options['learn'] | dict(aux_freq=3), env={}))
    cfg = compile_config(main, create, seed=0)
    with SerialPipeline(cfg) as whole:
        for _ in range(2):
            whole.step()
        saved = whole.save_checkpoint(cwd / 'saved')
        for _ in range(2):
            whole.step()
    with SerialPipeline(compile_config(main, create, seed=0), resume=saved) as resumed:
        for _ in range(2):
            resumed.step()
    expected, got = (run.policy.learn_mode.state_dict() for run in (whole, resumed))
    assert all(got['model'][name].equal(weight) for name, weight in expected['model'].items())
    assert len(got['rounds']) == len(expected['rounds']) == 1
