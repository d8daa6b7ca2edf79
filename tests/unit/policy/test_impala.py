"""V-trace in policies: targets and gradients equal the paper's, written out; fresh data are learned from as PPO and A2C do."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from policy_toys import random_block

from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy import create_policy
from rlframe.policy.ppo import PPOPolicy

GAMMA, LAMBDA = 0.9, 0.8
SPEC = EnvSpec(
    gymnasium.spaces.Box(-9, 9, (3,), np.float32), gymnasium.spaces.Discrete(4, start=2), name='Toy'
)
HALF = dict(discount_factor=GAMMA, gae_lambda=LAMBDA, n_sample=8)


def make(kind: str = 'impala', core: str | None = None, **cfg: Any) -> PPOPolicy:
    torch.manual_seed(0)
    model = dict(encoder_hidden_size_list=[8], core=core, core_hidden_size=5)
    base: dict[str, Any] = dict(type=kind, cuda=False, model=model, collect=HALF)
    policy: Any = create_policy(base | cfg, SPEC, seed=0)
    for parameter in policy.model.parameters():  # so that policies differ from the one that acted
        parameter.data += 0.3 * torch.randn_like(parameter)
    return policy


def remembering(block: Batch, policy: PPOPolicy) -> Batch:
    """Adds recurrent states, which are 0 where an episode begins."""
    steps, envs = block['terminated'].shape
    shape = policy.model.state_shape
    state = np.random.default_rng(7).normal(size=(steps, envs, *shape)).astype(np.float32)
    done = block['terminated'] | block['truncated']
    state[1:][done[:-1]] = 0.0
    return Batch({**block.columns, 'state': state})


def seen(policy: PPOPolicy, block: Batch, n: int) -> list[tuple[float, float, float]]:
    """Returns log-probability, value and next value of each step of an env, by single steps of the network."""
    network, core = policy.model, policy._has_core
    found: list[tuple[float, float, float]] = []
    state: Any = None
    for t in range(int(block['mask'][:, n].sum()) if 'mask' in block else len(block['terminated'])):
        obs, after = (torch.from_numpy(block[name][t, n])[None] for name in ('obs', 'next_obs'))
        begins = t == 0 or block['terminated'][t - 1, n] or block['truncated'][t - 1, n]
        with torch.no_grad():
            if core:
                state = torch.from_numpy(block['state'][t, n])[None] if begins else state
                value = network.value_step(obs, state)[0]
                logit, state = network.step(obs, state)
                next_value = network.value_step(after, state)[0]
            else:
                logit, value, next_value = network.logit(obs), network.value(obs), network.value(after)
        log_prob = torch.log_softmax(logit.double(), 1)[0, block['action'][t, n]]
        ended = 0.0 if block['terminated'][t, n] else float(next_value)
        found.append((float(log_prob), float(value), ended))
    return found


def written_out(
    policy: PPOPolicy, block: Batch, n: int, clips: tuple[float, float]
) -> list[tuple[float, float]]:
    """Returns V-trace target and advantage of each step of an env, from behind: remark 1 of the paper."""
    steps, results = seen(policy, block, n), []
    excess = 0.0  # v_(s + 1) - V(x_(s + 1)), 0 behind an end
    for t in reversed(range(len(steps))):
        log_prob, value, next_value = steps[t]
        logit = block['logit'][t, n].astype(float)
        ratio = np.exp(log_prob - logit[block['action'][t, n]]) * np.exp(logit).sum()
        if block['terminated'][t, n] or block['truncated'][t, n]:
            excess = 0.0
        advantage = block['reward'][t, n] + GAMMA * (next_value + excess) - value
        delta = min(clips[0], ratio) * (block['reward'][t, n] + GAMMA * next_value - value)
        excess = delta + GAMMA * LAMBDA * min(clips[1], ratio) * excess
        results.append((value + excess, advantage))
    return results[::-1]


@pytest.mark.parametrize('core', [None, 'lstm', 'gru'])
@pytest.mark.parametrize('ragged', [False, True])
def test_targets_equal_those_of_the_paper_step_by_step(core: str | None, ragged: bool) -> None:
    policy = make(core=core, learn=dict(clip_rho=1.3, clip_c=0.9))
    block = random_block(seed=1, ragged=ragged)
    assert block['terminated'].any() and block['truncated'].any()
    block = remembering(block, policy) if core else block
    data = policy.collect_mode.get_train_sample(block)
    found = policy.advantages(data)
    expected = [pair for n in range(3) for pair in written_out(policy, block, n, (1.3, 0.9))]
    got = np.stack([found['return_'].numpy(), found['advantage'].numpy()], 1)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


def test_rows_that_are_delivered_in_two_parts_are_bootstrapped_between_them() -> None:
    """A part may end anywhere: the row behind it is not there, but its next obs is."""
    policy, block = make(), random_block(seed=2)
    data = policy.collect_mode.get_train_sample(block)
    first, rest = data[:4], data[4:]
    targets = [policy.advantages(part) for part in (first, rest)]
    joined = policy.advantages(Batch.cat([rest, first]))
    for name, column in joined.items():
        assert torch.allclose(column, torch.cat([targets[1][name], targets[0][name]]), atol=1e-6), name


def test_impalas_gradient_is_that_of_the_paper() -> None:
    """Section 4.2: weighted log-probabilities, squared errors of values and entropies, in one update."""
    policy, twin = make(learn=dict(entropy_weight=0.02)), make(learn=dict(entropy_weight=0.02))
    data = policy.collect_mode.get_train_sample(random_block(seed=3))
    targets, network = policy.advantages(data), twin.model
    logit, value = network(torch.from_numpy(data['obs']))
    log_prob = torch.log_softmax(logit, 1)
    chosen = log_prob[torch.arange(len(data)), torch.from_numpy(data['action'])]
    weight = (chosen - torch.from_numpy(data['log_prob'])).exp().detach().clamp(max=1.0)
    assert 0 < (weight < 1).float().mean() < 1
    actor = -(weight * chosen * targets['advantage']).mean()
    entropy = -(log_prob.exp() * log_prob).sum(1).mean()
    critic = (value - targets['return_']).square().mean()
    (actor + 0.5 * critic - 0.02 * entropy).backward()
    actor, critic = actor.detach(), critic.detach()
    (update,) = policy.learn_mode.forward(data)
    metrics = update()
    assert float(metrics['policy_loss']) == pytest.approx(float(actor), rel=1e-4)
    assert float(metrics['value_loss']) == pytest.approx(float(critic), rel=1e-4)
    assert float(metrics['clip_fraction']) == pytest.approx(float((weight == 1).float().mean()))
    for mine, theirs in zip(policy.model.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(('kind', 'other'), [('appo', 'ppo'), ('impala', 'a2c')])
def test_fresh_data_are_learned_from_as_without_vtrace(kind: str, other: str) -> None:
    """All ratios are 1 then, and with lambda 1 targets are returns."""
    whole = dict(batch_size=None, epoch_per_collect=1, grad_clip_norm=None, entropy_weight=0.0)
    gradients = []
    for name in (kind, other):
        policy = make(name, learn=whole, collect=HALF | dict(gae_lambda=1.0))
        block = random_block(seed=4)
        with torch.no_grad():
            logit = policy.model.logit(torch.from_numpy(block['obs'].reshape(-1, 3))).reshape(7, 3, 4)
        data = policy.collect_mode.get_train_sample(Batch({**block.columns, 'logit': logit.numpy()}))
        (update,) = policy.learn_mode.forward(data)
        assert float(update()['approx_kl']) == pytest.approx(0.0, abs=1e-6)
        gradients.append([parameter.grad for parameter in policy.model.parameters()])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_traces_longer_than_values_can_be_corrected_are_refused() -> None:
    with raises(ConfigError):
        make(learn=dict(clip_rho=0.5, clip_c=0.8))


def test_unclipped_ratios_of_ppo_count_as_they_are() -> None:
    policy = make('ppo', learn=dict(clip_ratio=None))
    ratio, advantage = torch.tensor([0.1, 3.0]), torch.tensor([1.0, 1.0])
    loss, is_clipped = policy.update.policy_loss(ratio.log(), ratio, advantage)
    assert float(loss) == pytest.approx(-1.55) and not is_clipped.any()
