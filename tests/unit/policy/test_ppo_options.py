"""What PPO's options say they do, written out; A2C's gradient; continuous actions that are clipped."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from zoo import BoxEnv

from rlframe.data import Batch, EnvSpec, TimeStep
from rlframe.policy import create_policy
from rlframe.policy.ppo import PPOPolicy

SPEC = EnvSpec(gymnasium.spaces.Box(-9, 9, (3,), np.float32), gymnasium.spaces.Discrete(4), name='Toy')


def make(
    name: str = 'ppo', spec: EnvSpec = SPEC, model: Any = None, seed: int = 0, **learn: Any
) -> PPOPolicy:
    torch.manual_seed(seed)
    cfg = {'type': name, 'cuda': False, 'learn': {'nan_policy': 'raise'} | learn, 'model': model or {}}
    return create_policy(cfg, spec, seed=seed)


def samples_of(size: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0) -> Batch:
    rng = np.random.default_rng(seed)
    value, advantage = rng.normal(size=size), rng.normal(size=size)
    return Batch(
        obs=rng.normal(size=(size, 3)).astype(np.float32),
        action=rng.integers(4, size=size),
        log_prob=np.log(rng.uniform(0.1, 0.5, size)).astype(np.float32),
        advantage=(scale * advantage).astype(np.float32),
        return_=(scale * (advantage + value) + shift).astype(np.float32),
    )


def run(policy: PPOPolicy, data: Batch) -> list[dict[str, float]]:
    return [{k: float(v) for k, v in update().items()} for update in policy.learn_mode.forward(data)]


def critic_of(policy: PPOPolicy, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return policy.model.value(torch.from_numpy(obs)).numpy().astype(float)


@pytest.mark.parametrize(('limit', 'value_norm'), [(None, False), (0.3, True)])
def test_value_loss_equals_its_formula_row_by_row(limit: float | None, value_norm: bool) -> None:
    policy = make(value_clip=limit, value_norm=value_norm, batch_size=None, epoch_per_collect=1)
    data = samples_of(40, scale=3.0, shift=5.0)
    now, target = critic_of(policy, data['obs']), data['return_'].astype(float)
    before = target - data['advantage']
    if value_norm:
        mean, std = target.mean(), target.std()
        target, before = (target - mean) / std, (before - mean) / std
    (metrics,) = run(policy, data)
    losses, clipped = [], 0
    for value, old, wanted in zip(now, before, target, strict=True):
        near = value if limit is None else old + min(max(value - old, -limit), limit)
        losses.append(max((value - wanted) ** 2, (near - wanted) ** 2))
        clipped += losses[-1] > (value - wanted) ** 2
    assert metrics['value_loss'] == pytest.approx(np.mean(losses), rel=1e-4)
    assert (5 < clipped < 35) == (limit is not None)


def test_with_normalised_values_the_unit_of_returns_does_not_matter() -> None:
    scale, shift = 50.0, -4000.0
    options = dict(value_norm=True, epoch_per_collect=3, batch_size=16)
    one, other = make(**options), make(**options)
    for seed in range(3):
        losses = [
            [metrics['value_loss'] for metrics in run(policy, data)]
            for policy, data in ((one, samples_of(48, seed)), (other, samples_of(48, seed, scale, shift)))
        ]
        np.testing.assert_allclose(losses[1], losses[0], rtol=0.02)
    obs = samples_of(48)['obs']
    np.testing.assert_allclose(
        other._values(obs), scale * one._values(obs) + shift, rtol=0.02, atol=0.05 * scale
    )


def test_statistics_of_returns_are_saved_with_the_policy_and_with_what_collects() -> None:
    policy, other, bare = make(value_norm=True), make(value_norm=True), make(value_norm=True)
    run(policy, samples_of(30, scale=7.0, shift=100.0))
    obs = samples_of(5)['obs']
    assert policy._values(obs).mean() > 50
    other.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    bare.collect_mode.load_state_dict(copy.deepcopy(policy.collect_mode.state_dict()))
    for twin in (other, bare):
        np.testing.assert_array_equal(twin._values(obs), policy._values(obs))


@pytest.mark.parametrize(('norm', 'ddof'), [('batch', 0), ('round', 0), ('round', 1), (None, 0)])
def test_advantages_are_normalised_over_what_was_asked_for(norm: str | None, ddof: int) -> None:
    policy = make(
        advantage_norm=norm, advantage_ddof=ddof, batch_size=10, epoch_per_collect=1, learning_rate=1e-12
    )
    data = samples_of(40, scale=4.0)
    with torch.no_grad():
        logit = policy.model.logit(torch.from_numpy(data['obs'])).numpy()
    log_prob = policy.distribution.log_prob(logit, data['action'])
    data = data.replace(log_prob=log_prob, advantage=data['advantage'] + 3.0)
    order = np.random.default_rng(0)
    order.bit_generator.state = policy.rng.bit_generator.state
    index = order.permutation(40)
    got = [-metrics['policy_loss'] for metrics in run(policy, data)]
    advantage = data['advantage'].astype(float)
    if norm == 'round':
        advantage = (advantage - advantage.mean()) / advantage.std(ddof=ddof)
    wanted = [0.0 if norm == 'batch' else advantage[part].mean() for part in np.split(index, 4)]
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_the_epoch_that_exceeds_the_limit_is_the_last_one() -> None:
    options = dict(epoch_per_collect=8, batch_size=20, learning_rate=5e-3, entropy_weight=0.0)
    free = make(**options)
    data = samples_of(40)
    with torch.no_grad():
        logit = free.model.logit(torch.from_numpy(data['obs'])).numpy()
    data = data.replace(log_prob=free.distribution.log_prob(logit, data['action']))
    kl = np.array([metrics['approx_kl'] for metrics in run(free, data)]).reshape(8, 2).mean(1)
    limit = float(np.sort(kl)[3])
    stopped = run(make(target_kl=limit, **options), data)
    assert 2 <= len(stopped) // 2 == int(np.argmax(kl > limit)) + 1 < 8
    np.testing.assert_allclose([m['approx_kl'] for m in stopped], kl.repeat(2)[: len(stopped)], atol=1)


def test_schedules_of_clip_ratio_and_entropy_weight_follow_env_steps() -> None:
    def fall(start: float) -> dict[str, Any]:
        return dict(type='linear', start=start, end=0.0, decay=100)

    options = dict(
        clip_ratio=fall(0.4), entropy_weight=fall(0.2), learning_rate=fall(1e-3), epoch_per_collect=1
    )
    policy = make(batch_size=None, **options)
    policy.command_mode.get_setting_learn({'envstep': 50})
    (scheduled,) = run(policy, samples_of(60))
    (fixed,) = run(
        make(batch_size=None, epoch_per_collect=1, clip_ratio=0.2, entropy_weight=0.1), samples_of(60)
    )
    for name in ('total_loss', 'policy_loss', 'clip_fraction'):
        assert scheduled[name] == pytest.approx(fixed[name], rel=1e-6), name
    assert scheduled['cur_lr'] == pytest.approx(5e-4) and 0 < fixed['clip_fraction'] < 1


@pytest.mark.parametrize('optimizer', ['adam', 'rmsprop'])
def test_a2c_steps_along_the_policy_gradient(optimizer: str) -> None:
    policy = make('a2c', optimizer=optimizer, entropy_weight=0.03, value_weight=0.4, grad_clip_norm=None)
    data = samples_of(40)
    with torch.no_grad():
        logit = policy.model.logit(torch.from_numpy(data['obs'])).numpy()
    data = data.replace(log_prob=policy.distribution.log_prob(logit, data['action']))
    twin = copy.deepcopy(policy.model)
    (metrics,) = run(policy, data)
    assert metrics['clip_fraction'] == 0 and abs(metrics['approx_kl']) < 1e-6
    logit, value = twin(torch.from_numpy(data['obs']))
    log_probs = torch.log_softmax(logit, 1)
    chosen = log_probs[torch.arange(40), torch.from_numpy(data['action'])]
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    loss = -(chosen * torch.from_numpy(data['advantage'])).mean() - 0.03 * entropy
    loss = loss + 0.4 * (value - torch.from_numpy(data['return_'])).square().mean()
    loss.backward()
    for got, wanted in zip(policy.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-3, atol=1e-6)
    kinds = {'adam': torch.optim.Adam, 'rmsprop': torch.optim.RMSprop}
    kinds[optimizer](twin.parameters(), lr=7e-4, eps=1e-5).step()
    for got, wanted in zip(policy.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_rmsprop_continues_from_its_state_and_leaves_bad_updates_out() -> None:
    policy, other = make('a2c', nan_policy='skip'), make('a2c', seed=3)
    run(policy, samples_of(20))
    before = copy.deepcopy(policy.learn_mode.state_dict())
    bad = samples_of(20)
    run(policy, bad.replace(return_=bad['return_'] * np.float32('nan')))
    for name, tensor in policy.model.state_dict().items():
        assert torch.equal(tensor, before['model'][name]), name
    other.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    one, two = (run(p, samples_of(20, 1))[0]['total_loss'] for p in (policy, other))
    assert one == two
    for a, b in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


def one_step(policy: PPOPolicy, spec: EnvSpec, count: int = 2000) -> tuple[Batch, dict[str, np.ndarray]]:
    obs = np.zeros((count, 4), np.float32)
    output, flags = policy.collect_mode.forward(obs, np.arange(count)), np.zeros(count, bool)
    step = TimeStep(obs, np.zeros(count, np.float32), flags, flags, ({},) * count, np.arange(count))
    assert all(spec.action_space.contains(action) for action in output['action'][:200])
    return output, policy.collect_mode.process_transition(obs, output, step)


def test_continuous_actions_are_clipped_for_the_env_and_recorded_as_they_were_drawn() -> None:
    spec = EnvSpec(BoxEnv.observation_space, BoxEnv.action_space, name='Box')
    policy = make(spec=spec)
    output, rows = one_step(policy, spec)
    unclipped, taken = rows['action'], output['action']
    assert unclipped.shape == (2000, 2) and taken.shape == (2000, 1, 2)
    outside = np.abs(unclipped) > 1
    assert 0.2 < outside.mean() < 0.45, 'a third of a standard normal distribution'
    low, high = spec.action_space.low, spec.action_space.high
    np.testing.assert_allclose(taken[:, 0], (low + (unclipped.clip(-1, 1) + 1) / 2 * (high - low)), rtol=1e-5)
    block = Batch(
        {name: column[None] for name, column in rows.items()} | {'collect_iter': np.zeros((1, 2000))}
    )
    samples = policy.collect_mode.get_train_sample(block)
    mean, std = output['logit'][:, :2], np.exp(output['logit'][:, 2:])
    wanted = -0.5 * ((unclipped - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(samples['log_prob'], wanted.sum(1), rtol=1e-4)
    best = policy.eval_mode.forward(np.zeros((3, 4), np.float32), np.arange(3))['action']
    np.testing.assert_allclose(best[:, 0], low + (mean[:3] + 1) / 2 * (high - low), rtol=1e-4, atol=1e-5)
