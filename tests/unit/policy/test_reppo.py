"""REPPO's returns, its two losses and its smoothed targets are those of the papers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from policy_toys import BOX, small

from rlframe.data import Batch
from rlframe.policy.parts.outputs import smoothed
from rlframe.policy.reppo import divergence

DISCOUNT, TRACE = 0.9, 0.8


def made(**learn: Any) -> Any:
    options = dict(discount_factor=DISCOUNT, normalize_reward=False, collect={'q_lambda': TRACE})
    return small('reppo', BOX, model={'n_atom': 21, 'init_alpha': 0.3}, learn=learn, **options)


def block(steps: int = 4, envs: int = 2) -> Batch:
    """Returns the columns of a round, of which one episode ends and one is cut in the middle."""
    rng = np.random.default_rng(1)
    ends = np.zeros((steps, envs), bool)
    terminated, truncated = ends.copy(), ends.copy()
    terminated[1, 0], truncated[2, 1] = True, True
    obs = rng.standard_normal((steps + 1, envs, 3)).astype(np.float32)
    return Batch(
        obs=obs[:-1],
        next_obs=np.where((terminated | truncated)[..., None], obs[1:] + 1, obs[1:]),
        action=rng.uniform(-0.9, 0.9, (steps, envs, 2)).astype(np.float32),
        reward=rng.standard_normal((steps, envs)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        collect_iter=np.zeros((steps, envs), np.int64),
    )


def test_returns_are_soft_lambda_returns_of_the_actions_that_followed() -> None:
    policy, rows = made(), block()
    samples = policy.get_train_sample(rows)
    # the same draws for the steps behind an end
    fresh = made()
    last = (rows['terminated'] | rows['truncated']).copy()
    last[-1] = True
    behind = fresh._seen(rows['next_obs'][last], None)
    seen = fresh._seen(rows['obs'].reshape(8, 3), rows['action'].reshape(8, 2))
    value, log_prob = (seen[name].reshape(4, 2) for name in ('value', 'log_prob'))
    drawn = {name: np.zeros((4, 2), np.float32) for name in ('value', 'log_prob')}
    for name in drawn:
        drawn[name][last] = behind[name]
    wanted = np.zeros((4, 2))
    for env in range(2):
        for step in reversed(range(4)):
            if last[step, env]:
                after, density = drawn['value'][step, env], drawn['log_prob'][step, env]
                further = after
            else:
                after, density = value[step + 1, env], log_prob[step + 1, env]
                further = wanted[step + 1, env]
            mixed = (1 - TRACE) * after + TRACE * further - 0.3 * density
            mixed = 0.0 if rows['terminated'][step, env] else mixed
            wanted[step, env] = rows['reward'][step, env] + DISCOUNT * mixed
    np.testing.assert_allclose(samples['return_'], wanted.reshape(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(samples['outcome'][:, -1], rows['reward'].reshape(-1))
    features = seen['features'].reshape(4, 2, -1)
    np.testing.assert_allclose(samples['outcome'][0, :-1], features[1, 0], rtol=1e-6)
    np.testing.assert_allclose(samples['outcome'][2, :-1], behind['features'][0], rtol=1e-6)


def test_a_row_that_moved_too_far_is_only_drawn_back() -> None:
    policy = made(kl_limit=0.1)
    rows = policy.columns(policy.get_train_sample(block())) | {'noise': torch.randn(8, 2)}
    rows['mean'] = rows['mean'] + torch.tensor([[0.0], [3.0]] * 4)  # every second row
    update, actor = policy.update, policy.model.actor
    mean, log_std = actor(rows['obs'])
    kl = divergence(rows['mean'], rows['log_std'], mean, log_std)
    assert (kl > 0.1).tolist() == [False, True] * 4
    normal = torch.distributions.Normal(mean, log_std.exp())
    raw = mean + log_std.exp() * rows['noise']
    log_prob = (normal.log_prob(raw) - torch.log1p(-raw.tanh().square())).sum(1)
    value = policy.model.critic(rows['obs'], raw.tanh()).softmax(1) @ update.support
    alpha, weight = 0.3, 0.01
    each = torch.where(kl > 0.1, weight * kl, alpha * log_prob - value)
    wanted = each.mean() + alpha * (-log_prob.mean() + 1.0) + weight * (0.1 - kl.mean())
    found = update.actor_loss(rows)
    torch.testing.assert_close(found.value, wanted, rtol=1e-4, atol=1e-4)
    # the multipliers rise where entropy lacks, and where the divergence is too large
    found.value.backward()
    assert math.copysign(1, actor.log_alpha.grad) == math.copysign(1, (-log_prob.mean() + 1.0).item())
    assert actor.log_kl_weight.grad < 0 < kl.mean() - 0.1


def test_the_divergence_is_that_of_gaussians() -> None:
    one, other, log_std, other_log_std = torch.randn(4, 5, 3, dtype=torch.float64)
    distributions = (
        torch.distributions.Normal(one, log_std.exp()),
        torch.distributions.Normal(other, other_log_std.exp()),
    )
    wanted = torch.distributions.kl_divergence(*distributions).sum(1)
    torch.testing.assert_close(divergence(one, log_std, other, other_log_std), wanted)


def test_a_smoothed_return_keeps_its_mean_and_sums_to_one() -> None:
    support = torch.linspace(-5, 5, 21)
    value = torch.tensor([0.1, -3.3, 4.0, 99.0])
    found = smoothed(value, support)
    torch.testing.assert_close(found.sum(1), torch.ones(4))
    torch.testing.assert_close((found @ support)[:2], value[:2], rtol=0, atol=2e-3)

    def share(low: float, high: float) -> float:
        return 0.5 * (math.erf((high - 0.1) / 0.375 / 2**0.5) - math.erf((low - 0.1) / 0.375 / 2**0.5))

    assert math.isclose(found[0, 10].item(), share(-0.25, 0.25), rel_tol=1e-5)
    assert found[3].argmax() == 20


def test_the_end_of_an_episode_predicts_nothing() -> None:
    policy = made()
    rows = policy.columns(policy.get_train_sample(block()))
    before = policy.update.critic_loss(rows).metrics['prediction_loss']
    rows['outcome'] = torch.where(rows['terminated'][:, None], rows['outcome'] + 100, rows['outcome'])
    assert policy.update.critic_loss(rows).metrics['prediction_loss'] == before
