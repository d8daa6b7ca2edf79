"""CQL: what it adds to the losses of SAC and DQN by hand, and that without weight it adds nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from policy_toys import BOX, MASKED, PLAIN, apart, random_rows, small

from rlframe.data.observation import zero_obs


def made(kind: str, spec: Any = BOX, **learn: Any) -> Any:
    return apart(small(kind, spec, learn=learn))


def logsumexp(value: np.ndarray) -> np.ndarray:
    return np.log(np.exp(value).sum(-1))


def drawn(mean: np.ndarray, log_std: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An action of the tanh-Gaussian and its log density, by the change of variables."""
    u = mean + np.exp(log_std) * noise
    density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(u) ** 2)
    return np.tanh(u), density.sum(-1)


def test_the_gap_is_what_drawn_actions_promise_more_than_recorded_ones() -> None:
    policy, count = made('cql', conservative_weight=2.0, num_actions=3), 6
    rows = policy.columns(random_rows(count, actions=None))
    critic = policy.model.critic
    wanted = 0.0
    with torch.no_grad():
        heads = [
            [part.numpy().astype(float) for part in policy.model.actor(rows[name])]
            for name in ('obs', 'next_obs')
        ]
        for i in range(count):
            actions, log_prob = [], []
            for (mean, log_std), noise in zip(heads, rows['several_noise'].numpy(), strict=True):
                for k in range(3):
                    action, density = drawn(mean[i], log_std[i], noise[i, k].astype(float))
                    actions.append(action), log_prob.append(density)
            for k in range(3):
                actions.append(rows['several_uniform'][i, k].numpy()), log_prob.append(2 * np.log(0.5))
            obs = rows['obs'][i].expand(len(actions), -1)
            value = critic(obs, torch.from_numpy(np.float32(actions))).numpy().astype(float)
            recorded = critic(rows['obs'][i : i + 1], rows['action'][i : i + 1]).numpy()[:, 0]
            wanted += (logsumexp(value - np.array(log_prob)) - recorded).sum() / count
    loss = policy.update.critic_loss(rows)
    assert loss.metrics['conservative_gap'].item() == pytest.approx(wanted, rel=1e-4)
    plain = made('cql', conservative_weight=0.0, num_actions=3).update.critic_loss(rows)
    assert (loss.value - plain.value).item() == pytest.approx(2 * wanted, rel=1e-4)


def test_targets_have_no_entropy_and_the_actor_is_that_of_sac() -> None:
    policy, sac = made('cql', conservative_weight=0.0), made('sac', alpha=0.0)
    sac.model.load_state_dict(policy.model.state_dict())
    sac.update.targets.network.load_state_dict(policy.update.targets.network.state_dict())
    rows = policy.columns(random_rows(6, actions=None))
    assert policy.update.critic_loss(rows).value.item() == pytest.approx(
        sac.update.critic_loss(rows).value.item()
    )


def test_values_of_unseen_actions_fall_below_those_of_recorded_ones() -> None:
    policy = made('cql', conservative_weight=5.0, learning_rate_critic=1e-2)
    data = random_rows(32, actions=None)
    gaps = [float(policy.learn_mode.forward(data)['conservative_gap']) for _ in range(100)]
    assert gaps[-1] < gaps[0] - 0.3


def test_discrete_actions_are_summed_over_exactly_and_forbidden_ones_left_out() -> None:
    for spec in (PLAIN, MASKED):
        policy = made('discrete_cql', spec, conservative_weight=1.5)
        dqn = made('dqn', spec)
        dqn.learn_mode.load_state_dict(policy.learn_mode.state_dict())
        data = random_rows(6)
        if spec is MASKED:
            obs = zero_obs(MASKED.observation_space, 6)
            obs['observation'], obs['action_mask'] = data['obs'], 1
            obs['action_mask'][:, 3] = 0
            data = data.replace(obs=obs, next_obs=obs, action=data['action'] % 3)
        rows = policy.columns(data)
        with torch.no_grad():
            value = policy.model(rows['obs']).numpy().astype(float)
        if spec is MASKED:
            value[~data['obs']['action_mask'].astype(bool)] = -np.inf
        gap = np.mean(logsumexp(value) - value[np.arange(6), data['action']])
        wanted = dqn.update.loss(rows).value.item() + 1.5 * gap
        assert policy.update.loss(rows).value.item() == pytest.approx(wanted, rel=1e-5)
