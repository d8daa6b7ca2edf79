"""Masks: forbidden actions are neither taken nor counted, and allowed ones are drawn as often as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from policy_toys import apart

from rlframe.data import Batch, EnvSpec
from rlframe.data.observation import zero_obs
from rlframe.policy import create_policy
from rlframe.policy.parts.actions import random_allowed

DQN_FAMILY = {'dqn': {}, 'dqn single': {'double': False}, 'c51': {}, 'qrdqn': {}}
MASKS = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(lambda shape: arrays(np.bool_, shape))
ACTIONS, START = 5, 2
SPACE = spaces.Dict(action_mask=spaces.MultiBinary(ACTIONS), observation=spaces.Box(-1, 1, (3,)))
SPEC = EnvSpec(SPACE, spaces.Discrete(ACTIONS, start=START), name='Masked')


def observations(mask: np.ndarray, seed: int = 0) -> Any:
    rows = zero_obs(SPACE, len(mask))
    rows['action_mask'] = mask
    rows['observation'] = np.random.default_rng(seed).normal(size=(len(mask), 3))
    return rows


def random_masks(count: int, seed: int = 0, empty: int = 0) -> np.ndarray:
    """Returns random masks, the first ``empty`` of which allow nothing."""
    rng = np.random.default_rng(seed)
    mask = rng.random((count, ACTIONS)) < 0.4
    mask[np.arange(count), rng.integers(0, ACTIONS, count)] = True
    mask[:empty] = False
    return mask


def make(name: str, **cfg: Any) -> Any:
    torch.manual_seed(0)
    options = {'type': name.split()[0], 'device': 'cpu', 'discount_factor': 0.9} | DQN_FAMILY[name] | cfg
    return create_policy(options, SPEC, seed=0)


@settings(max_examples=50, deadline=None)
@given(mask=MASKS, uniform=st.one_of(st.floats(0, 1, exclude_max=True), st.just(np.nextafter(1.0, 0))))
def test_random_action_is_the_nth_allowed(mask: np.ndarray, uniform: float) -> None:
    mask[:, -1] = True
    chosen = random_allowed(mask, np.full(len(mask), uniform))
    for allowed, action in zip(mask, chosen, strict=True):
        at = np.flatnonzero(allowed)
        assert action == at[min(int(uniform * len(at)), len(at) - 1)]


@pytest.mark.parametrize('name', DQN_FAMILY)
def test_greedy_actions_are_the_best_of_the_allowed(name: str) -> None:
    policy = make(name)
    mask = random_masks(300)
    obs = observations(mask)
    with torch.no_grad():
        value = policy.values(policy.tensor(obs)).numpy()
    expected = np.array([np.flatnonzero(m)[v[m].argmax()] for m, v in zip(mask, value, strict=True)]) + START
    assert (expected - START != value.argmax(1)).mean() > 0.3
    for forward in (policy.eval_mode.forward, policy.collect_mode.forward):
        np.testing.assert_array_equal(forward(obs, np.arange(300))['action'], expected)


def test_exploration_draws_each_allowed_action_equally_often() -> None:
    policy, count, eps = make('dqn'), 20_000, 0.4
    one = observations(np.array([[1, 0, 1, 1, 0]], bool))
    obs = np.repeat(one, count)
    action = policy.collect_mode.forward(obs, np.arange(count), eps=eps)['action'] - START
    share = np.bincount(action, minlength=ACTIONS) / count
    best = int(policy.eval_mode.forward(one, np.arange(1))['action'][0]) - START
    expected = np.array([1, 0, 1, 1, 0]) * eps / 3
    expected[best] += 1 - eps
    assert (share[[1, 4]] == 0).all()
    np.testing.assert_allclose(share, expected, atol=0.02)


@pytest.mark.parametrize('name', DQN_FAMILY)
def test_target_looks_at_allowed_actions_only_and_stays_finite_where_none_is(name: str) -> None:
    policy, count = apart(make(name)), 40  # or else both networks choose the same
    mask = random_masks(count, seed=3, empty=5)
    next_obs = observations(mask, seed=3)
    terminated = np.arange(count) < 5
    data = Batch(next_obs=next_obs, reward=np.arange(count, dtype=np.float32) / count, terminated=terminated)
    tensors = policy.tensor(next_obs)
    with torch.no_grad():
        update = policy.update
        output = update.output(update.targets.network, tensors)
        value = update.output(policy.model, tensors).mean() if update.double else output.mean()
        target = update.target(policy.columns(data))
        best = [
            (allowed := np.flatnonzero(m))[v[allowed].argmax()] if m.any() else 0
            for m, v in zip(mask, value, strict=True)
        ]
        discount = update.targets.discount(policy.columns(data))
        wanted = output.gather(torch.tensor(best)).target(torch.from_numpy(data['reward']), discount)
    assert torch.isfinite(target).all()
    torch.testing.assert_close(target[5:], wanted[5:])
    unmasked = output.mean().numpy().argmax(1)
    assert (~mask[np.arange(count), unmasked])[5:].any(), 'the mask made a difference'
    if name.startswith('dqn'):
        np.testing.assert_allclose(target[:5], data['reward'][:5])


def soft(**learn: Any) -> Any:
    torch.manual_seed(0)
    learn = dict(learning_rate_alpha=0.1, batch_size=8) | learn
    return create_policy({'type': 'sac_discrete', 'device': 'cpu', 'learn': learn}, SPEC, seed=0)


def learned_alpha(mask: np.ndarray, updates: int = 30, **learn: Any) -> float:
    """Returns the weight of the entropy, at first 1, after updates from rows with such masks."""
    policy, obs, count = soft(**learn), observations(mask), len(mask)
    action = mask.argmax(1).astype(np.int8)
    zeros = np.zeros(count, np.float32)
    data = Batch(obs=obs, next_obs=obs, action=action, reward=zeros, terminated=zeros > 0)
    for _ in range(updates):
        alpha = policy.learn_mode.forward(data)['alpha']
    return float(alpha)


def test_states_that_allow_one_action_do_not_move_the_weight_of_the_entropy() -> None:
    assert learned_alpha(np.eye(ACTIONS, dtype=bool)) == pytest.approx(1.0, abs=1e-3)
    assert learned_alpha(np.eye(ACTIONS, dtype=bool), target_entropy=1.0) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize('count', [2, ACTIONS])
def test_target_entropy_is_that_of_the_allowed_actions(count: int) -> None:
    mask = np.zeros((8, ACTIONS), bool)
    mask[:, :count] = True
    mask[::2] = np.roll(mask[::2], 1, axis=1)
    rows = {'obs': soft().tensor(observations(mask))}
    for learn, expected in (
        ({}, 0.5 * np.log(count)),
        ({'target_entropy': 0.7}, 0.7 * np.log(count) / np.log(ACTIONS)),
    ):
        metrics = soft(**learn).update.actor_loss(rows).metrics
        assert float(metrics['target_entropy']) == pytest.approx(expected)
    assert learned_alpha(mask) < 1, 'a uniform choice of the allowed ones has more entropy than that'
