"""PPO's samples, loss and updates equal what their formulas say, with every kind of episode end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from policy_toys import random_block
from test_ppo_options import samples_of

from rlframe.data import EnvSpec
from rlframe.policy import create_policy
from rlframe.policy.ppo import PPOPolicy

GAMMA, LAMBDA = 0.9, 0.7
SPEC = EnvSpec(
    gymnasium.spaces.Box(-9, 9, (3,), np.float32), gymnasium.spaces.Discrete(4, start=2), name='Toy'
)


def make(seed: int = 0, learn: dict[str, Any] | None = None, **cfg: Any) -> PPOPolicy:
    torch.manual_seed(seed)
    collect = {'discount_factor': GAMMA, 'gae_lambda': LAMBDA, 'n_sample': 8}
    base = {'type': 'ppo', 'cuda': False, 'collect': collect, 'learn': learn or {}}
    return create_policy(base | cfg, SPEC, seed=seed)


@pytest.mark.parametrize('ragged', [False, True])
def test_advantages_and_returns_equal_the_sum_written_out(ragged: bool) -> None:
    policy, block = make(), random_block(seed=1, ragged=ragged)
    assert block['terminated'].any() and block['truncated'].any()
    samples = policy.collect_mode.get_train_sample(block)

    def value(obs: np.ndarray) -> float:
        with torch.no_grad():
            return float(policy.model.critic(torch.from_numpy(obs)[None]))

    expected = []
    mask = block['mask'] if ragged else np.ones((7, 3), bool)
    for t, n in zip(*np.nonzero(mask), strict=True):
        advantage, k = 0.0, t
        while True:
            bootstrap = 0.0 if block['terminated'][k, n] else value(block['next_obs'][k, n])
            delta = block['reward'][k, n] + GAMMA * bootstrap - value(block['obs'][k, n])
            advantage += (GAMMA * LAMBDA) ** (k - t) * delta
            ended = block['terminated'][k, n] or block['truncated'][k, n]
            k += 1
            if ended or k == 7 or not mask[k, n]:
                break
        logit = block['logit'][t, n].astype(float)
        log_prob = logit[block['action'][t, n]] - np.log(np.exp(logit).sum())
        expected.append((advantage, advantage + value(block['obs'][t, n]), log_prob))
    assert len(samples) == mask.sum()
    got = np.stack([samples['advantage'], samples['return_'], samples['log_prob']], axis=1)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(samples['obs'], block['obs'][mask])
    assert samples['collect_iter'].tolist() == [3] * int(mask.sum())


def test_loss_equals_the_clipped_objective_written_out_row_by_row() -> None:
    learn = {'epoch_per_collect': 1, 'batch_size': 100, 'value_weight': 0.3, 'entropy_weight': 0.02}
    policy, data = make(learn=learn), samples_of(20)
    with torch.no_grad():
        logit = policy.model.actor(torch.from_numpy(data['obs'])).numpy().astype(float)
        value = policy.model.critic(torch.from_numpy(data['obs'])).numpy()[:, 0].astype(float)
    probs = np.exp(logit) / np.exp(logit).sum(1, keepdims=True)
    ratios = probs[np.arange(20), data['action']] / np.exp(data['log_prob'])
    assert (np.abs(ratios - 1) > 0.2).any() and (np.abs(ratios - 1) < 0.2).any()
    (update,) = list(policy.learn_mode.forward(data))
    metrics = update()
    advantage = data['advantage'].astype(float)
    scaled = (advantage - advantage.mean()) / advantage.std()
    terms = []
    for ratio, a in zip(ratios, scaled, strict=True):
        terms.append(min(ratio * a, min(max(ratio, 0.8), 1.2) * a))
    entropy = -(probs * np.log(probs)).sum(1).mean()
    value_loss = np.mean((value - data['return_']) ** 2)
    assert float(metrics['policy_loss']) == pytest.approx(-np.mean(terms), rel=1e-4)
    assert float(metrics['value_loss']) == pytest.approx(value_loss, rel=1e-4)
    assert float(metrics['entropy']) == pytest.approx(entropy, rel=1e-4)
    assert float(metrics['clip_fraction']) == pytest.approx(np.mean(np.abs(ratios - 1) > 0.2))
    assert float(metrics['approx_kl']) == pytest.approx(np.mean(ratios - 1 - np.log(ratios)), rel=1e-3)
    total = float(metrics['policy_loss']) + 0.3 * value_loss - 0.02 * entropy
    assert float(metrics['total_loss']) == pytest.approx(total, rel=1e-4)
    assert set(metrics) == set(policy.learn_mode.monitor_vars())


def test_a_clipped_ratio_has_no_gradient() -> None:
    policy = make(learn={'epoch_per_collect': 1, 'batch_size': 9, 'value_weight': 0.0, 'entropy_weight': 0.0})
    data = samples_of(2)
    with torch.no_grad():
        log_probs = torch.log_softmax(policy.model.actor(torch.from_numpy(data['obs'])), 1)
    own = log_probs[range(2), data['action']].numpy()
    for shift, clipped in ((1.0, True), (0.0, False)):
        rows = data.replace(
            log_prob=own - np.array([shift, -shift], np.float32), advantage=np.array([1, -1], np.float32)
        )
        for update in policy.learn_mode.forward(rows):
            update()
        grads = torch.cat([p.grad.flatten() for p in policy.model.actor.parameters()])
        assert (float(grads.abs().max()) == 0.0) == clipped


def test_every_epoch_visits_every_sample_once_in_an_order_of_its_own() -> None:
    policy, seen = make(learn={'epoch_per_collect': 3, 'batch_size': 8}), []
    data = samples_of(21).replace(advantage=np.arange(21, dtype=np.float32))
    policy.train_step = lambda rows: seen.append(rows['advantage'].int().tolist()) or {'approx_kl': 0}
    for update in policy.learn_mode.forward(data):
        update()
    assert [len(batch) for batch in seen] == [8, 8, 5] * 3
    epochs = [[*seen[i], *seen[i + 1], *seen[i + 2]] for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(21)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize(
    ('norm', 'size', 'steps'), [('batch', 4, 5), ('round', 1, 5), ('batch', None, 1), (None, 1, 1)]
)
def test_minibatches_of_one_row_teach_the_actor(norm: str | None, size: int | None, steps: int) -> None:
    only_actor = dict(entropy_weight=0.0, value_weight=0.0, clip_ratio=1e9)
    learn = dict(batch_size=size, advantage_norm=norm, epoch_per_collect=1, **only_actor)
    policy = make(learn=learn)
    samples = policy.collect_mode.get_train_sample(random_block(steps, envs=1))
    updates = list(policy.learn_mode.forward(samples))
    assert len(updates) == -(-steps // (size or steps))
    for update in updates:
        before = [p.detach().clone() for p in policy.model.parameters()]
        metrics = update()
        assert all(np.isfinite(float(value)) for value in metrics.values())
        assert any(not torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
