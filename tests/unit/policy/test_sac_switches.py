"""CrossQ, XQC, TQC, REDQ and DroQ do what their papers' formulas say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_toys import apart, random_rows, small

from rlframe.data import Batch, EnvSpec
from rlframe.model.core import EPS, MOMENTUM, WARM_UP, BatchRenorm, update_norms
from rlframe.policy.parts.outputs import Quantiles, project, quantile_huber_loss

OBS = spaces.Box(-1, 1, (3,), np.float32)
SPEC: Any = EnvSpec(OBS, spaces.Box(-1, 1, (2,), np.float32), name='Toy-v0')
SIZE = 8


def make(name: str = 'sac', spec: Any = SPEC, **cfg: Any) -> Any:
    model = {'encoder_hidden_size_list': [16], **cfg.pop('model', {})}
    return small(name, spec, model=model, **cfg)


def batch_of(seed: int = 0) -> Batch:
    return random_rows(SIZE, seed, actions=None)


# the norm


def test_norm_of_a_batch_is_corrected_towards_running_statistics_after_its_warm_up() -> None:
    norm, torch_norm = BatchRenorm(4), torch.nn.BatchNorm1d(4, EPS, MOMENTUM)
    first, second = torch.randn(2, 64, 4, generator=torch.Generator().manual_seed(0)) * 2 + 1
    torch.testing.assert_close(norm(first, True), torch_norm(first))
    update_norms([norm])
    share = 63 / 64  # torch keeps the unbiased variance
    np.testing.assert_allclose(norm.var - 0.99, (torch_norm.running_var - 0.99) * share, rtol=1e-3)
    norm.passes.fill_(WARM_UP + 1)
    norm.mean.copy_(second.mean(0) + 0.1), norm.var.copy_(second.var(0) * 1.2)
    expected = (second - norm.mean) * torch.rsqrt(norm.var + EPS)
    torch.testing.assert_close(norm(second, True), expected)  # as in evaluation, within the bounds
    norm.mean.copy_(second.mean(0) + 100)
    assert float((norm(second, True).detach().mean(0) + 5).abs().max()) < 1e-4, 'the correction is bounded'


def test_before_its_warm_up_a_norm_is_what_its_correction_makes_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)) * 2 + 1
    found = []
    for is_known in (True, False):  # as compiled code and GPUs do, which are not asked
        norm = BatchRenorm(4)
        assert norm._is_known_cold
        monkeypatch.setattr(BatchRenorm, '_is_known_cold', is_known)
        output = norm(features, True)
        output.square().mean(1).sum().backward()
        found.append((output, norm.weight.grad, norm.bias.grad))
        monkeypatch.undo()
    for early, late in zip(*found, strict=True):
        assert early is not None and torch.equal(early, late)


def test_a_batch_that_is_not_finite_does_not_spoil_the_running_statistics() -> None:
    norm = BatchRenorm(2)
    norm(torch.tensor([[1.0, float('nan')], [3.0, 4.0]]), True)
    update_norms([norm])
    assert norm.mean.tolist() == [0, 0] and norm.var.tolist() == [1, 1]
    norm(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16), True)
    update_norms([norm])
    assert norm.mean.dtype == torch.float32 and norm.mean.tolist() == pytest.approx([0.02, 0.03])


def test_acting_and_evaluation_use_running_statistics_and_change_none() -> None:
    policy = make('crossq')
    policy.learn_mode.forward(batch_of())
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    obs, env_id = batch_of()['obs'], np.arange(SIZE)
    together = policy.eval_mode.forward(obs, env_id)['action']
    alone = [policy.eval_mode.forward(obs[i : i + 1], env_id[:1])['action'][0] for i in range(SIZE)]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
    policy.collect_mode.forward(obs, env_id)
    assert all(bool((before[name] == value).all()) for name, value in policy.model.state_dict().items())


def test_crossq_values_both_states_in_one_pass_and_has_no_target_network() -> None:
    policy = make('crossq')
    rows = policy.columns(batch_of())
    loss = policy.update.critic_loss(rows)[0]
    twin = make('crossq')
    with torch.no_grad():
        action, log_prob = twin.update.act(rows['next_obs'], rows['next_noise'])
        obs = torch.cat([rows['obs'], rows['next_obs']])
        value = twin.model.critic(obs, torch.cat([rows['action'], action]), is_training=True)
        goes_on = 0.99 * ~rows['terminated']
        target = rows['reward'] + goes_on * (value[:, SIZE:].amin(0) - twin.update.entropy.value * log_prob)
        expected = (target - value[:, :SIZE]).square().mean(1).sum()
    torch.testing.assert_close(loss.detach(), expected)
    assert policy.learn_mode.state_dict()['target_model'] == {}


def test_the_actor_is_judged_by_running_statistics_that_have_seen_the_batch() -> None:
    policy, twin = make('crossq'), make('crossq')
    rows = twin.columns(batch_of())
    twin.update.optimizers['critic'].step(twin.update.critic_loss(rows)[0])
    before = twin.update.actor_loss(rows)[0].detach()
    update_norms(twin.update._norms)
    expected = twin.update.actor_loss(rows)[0].detach()
    assert abs(float(expected - before)) > 1e-4
    torch.testing.assert_close(policy.learn_mode.forward(batch_of())['actor_loss'], expected)


def test_norm_in_front_of_a_nonlinearity_takes_out_the_length_of_weights() -> None:
    critic = make('xqc').model.critic
    obs, action = torch.randn(64, 3), torch.rand(64, 2)
    before = critic(obs, action, is_training=True)
    with torch.no_grad():
        critic.nets[0].layers[0].weight.mul_(torch.rand(16, 1) + 5)
    torch.testing.assert_close(critic(obs, action, is_training=True), before, rtol=1e-3, atol=1e-3)
    assert bool((critic(obs, action) != before).any())


def test_xqc_learns_the_projected_distribution_of_the_smallest_by_one_pass_of_each_network() -> None:
    policy = apart(make('xqc', learn=dict(alpha=0.3)))
    rows = policy.columns(batch_of())
    with torch.no_grad():
        loss, metrics, error, _ = policy.update.critic_loss(rows)
        action, log_prob = policy.update.act(rows['next_obs'], rows['next_noise'])
        both = torch.cat([rows['obs'], rows['next_obs']]), torch.cat([rows['action'], action])
        now = policy.model.critic(*both, is_training=True)[:, :SIZE].log_softmax(2)
        then = policy.update.targets.network['critic'](*both, is_training=True)[:, SIZE:].softmax(2)
    support, expected, wanted = torch.linspace(-5, 5, 101), 0.0, []
    for i in range(SIZE):
        smallest = min(range(2), key=lambda c: float(then[c, i] @ support))
        goes_on = torch.tensor([0.0 if bool(rows['terminated'][i]) else 0.99])
        reward = rows['reward'][i : i + 1] - goes_on * 0.3 * log_prob[i]
        target = project(then[smallest, i][None], reward, goes_on, support)[0]
        expected -= float(sum(target @ now[c, i] for c in range(2))) / SIZE
        wanted.append(float(target @ support))
        distances = [abs(wanted[i] - float(now[c, i].exp() @ support)) for c in range(2)]
        assert float(error[i]) == pytest.approx(np.mean(distances), abs=1e-4)
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(metrics['target_q_value']) == pytest.approx(np.mean(wanted), abs=1e-4)


def test_running_statistics_of_target_networks_follow_nothing() -> None:
    policy = make('xqc')
    policy.learn_mode.forward(batch_of())
    for name, value in policy.update.targets.network.named_buffers():
        assert not name.endswith('passes') or float(value) == 0
    for norm in policy.update._norms:
        norm.passes.fill_(WARM_UP + 1)
    policy.reset_targets()
    assert {float(norm.passes) for norm in policy.update._target_norms} == {0}


# quantiles


def test_truncated_mixture_leaves_out_the_largest_of_all_critics() -> None:
    quantiles = torch.tensor([[[1.0, 9.0, 3.0]], [[2.0, 8.0, 7.0]]])
    assert sorted(Quantiles(quantiles).truncated(1).value[0].tolist()) == [1.0, 2.0, 3.0, 7.0]
    assert sorted(Quantiles(quantiles).truncated(0).value[0].tolist()) == [1.0, 2.0, 3.0, 7.0, 8.0, 9.0]


def test_tqc_regresses_each_critic_to_the_truncated_mixture() -> None:
    policy = make('tqc', model=dict(num_quantiles=5, n_critic=3), learn=dict(alpha=0.3))
    rows = policy.columns(batch_of())
    loss, _, error, _ = policy.update.critic_loss(rows)
    with torch.no_grad():
        action, log_prob = policy.update.act(rows['next_obs'], rows['next_noise'])
        then = policy.update.targets.network['critic'](rows['next_obs'], action)
        now = policy.model.critic(rows['obs'], rows['action'])
        loss = loss.detach()
    assert now.shape == (3, SIZE, 5)
    expected = 0.0
    for i in range(SIZE):
        kept = sorted(then[:, i].flatten().tolist())[: 3 * 3]
        goes_on = 0.0 if bool(rows['terminated'][i]) else 0.99
        samples = [float(rows['reward'][i]) + goes_on * (z - 0.3 * float(log_prob[i])) for z in kept]
        losses = [quantile_huber_loss(now[c, i][None], torch.tensor([samples])) for c in range(3)]
        expected += float(sum(losses)) / SIZE
        distances = [abs(np.mean(samples) - float(now[c, i].mean())) for c in range(3)]
        assert float(error[i]) == pytest.approx(np.mean(distances), abs=1e-4)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize('name', ['sac', 'tqc', 'redq', 'droq'])
def test_actor_raises_the_mean_of_all_critics_or_the_smallest(name: str) -> None:
    more = dict(dropout=0.0) if name == 'droq' else {}
    policy = make(name, model=dict(n_critic=4) | more, learn=dict(alpha=0.0))
    rows = policy.columns(batch_of())
    with torch.no_grad():
        loss = policy.update.actor_loss(rows)[0]
        value = policy.model.critic(rows['obs'], policy.update.act(rows['obs'], rows['noise'])[0])
    value = value.mean(2) if name == 'tqc' else value
    expected = value.amin(0) if name == 'sac' else value.mean(0)
    assert float(loss) == pytest.approx(-float(expected.mean()), rel=1e-4)


def test_actor_raises_the_smallest_mean_of_categorical_critics() -> None:
    policy = make('xqc', learn=dict(alpha=0.0))
    rows = policy.columns(batch_of())
    with torch.no_grad():
        loss = policy.update.actor_loss(rows)[0]
        action = policy.update.act(rows['obs'], rows['noise'], is_training=True)[0]
        value = policy.model.critic(rows['obs'], action).softmax(2) @ torch.linspace(-5, 5, 101)
    assert float(loss) == pytest.approx(-float(value.amin(0).mean()), abs=1e-5)


def test_all_weights_of_xqc_have_length_1_after_every_update() -> None:
    policy = make('xqc')
    policy.learn_mode.forward(batch_of())
    weights = [module.weight for module in policy.model.modules() if isinstance(module, torch.nn.Linear)]
    assert len(weights) == 6
    for weight in weights:
        torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))


# many critics, dropout


def test_redq_takes_the_smaller_of_two_drawn_critics() -> None:
    policy = make('redq', learn=dict(alpha=0.0))
    pairs = set()
    for _ in range(20):
        rows = policy.columns(batch_of())
        pairs.add(tuple(sorted(rows['critics'].tolist())))
        with torch.no_grad():
            metrics = policy.update.critic_loss(rows).metrics
            action, _ = policy.update.act(rows['next_obs'], rows['next_noise'])
            then = policy.update.targets.network['critic'](rows['next_obs'], action)[rows['critics']].amin(0)
        expected = rows['reward'] + 0.99 * ~rows['terminated'] * then
        assert float(metrics['target_q_value']) == pytest.approx(float(expected.mean()), rel=1e-4)
    assert len(pairs) > 10 and all(len(set(pair)) == 2 for pair in pairs)


@pytest.mark.parametrize('name', ['redq', 'droq'])
def test_targets_follow_in_every_update_and_the_actor_in_every_twentieth(name: str) -> None:
    policy = make(name)
    for i in range(3):
        before = [value.clone() for value in policy.update.targets.network.state_dict().values()]
        metrics = policy.learn_mode.forward(batch_of(i))
        assert ('actor_loss' in metrics) == (i == 0)
        after = policy.update.targets.network.state_dict().values()
        assert not all(bool((a == b).all()) for a, b in zip(before, after, strict=True))
