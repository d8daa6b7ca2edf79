"""MR.Q learns features by predicting what follows, and values of them, as its paper says."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from policy_toys import MASKED, OBS, PLAIN, apart, random_rows, random_sequences, small

from rlframe.data import Batch, EnvSpec
from rlframe.data.observation import zero_obs

Array = NDArray[Any]
BOX: Any = EnvSpec(OBS, gymnasium.spaces.Box(-1, 1, (2,), np.float32), name='Toy-v0')
GAMMA, FREQ = 0.9, 2
LENGTHS = [(0, 5, 'terminated'), (0, 3, 'truncated'), (0, 5, ''), (0, 1, 'terminated')]
SPECS = pytest.mark.parametrize('spec', [BOX, PLAIN], ids=['continuous', 'discrete'])


def made(spec: Any = BOX, **options: Any) -> Any:
    learn = dict(target_update_freq=FREQ) | options.pop('learn', {})
    model = dict(encoder_hidden_size_list=[8, 8])
    return apart(small('mrq', spec, model=model, discount_factor=GAMMA, learn=learn, **options), 0.3)


def sequences(spec: Any = BOX) -> Batch:
    """Returns four sequences of up to five steps."""
    return random_sequences(LENGTHS, 0, 5, (1, 1), None if spec is BOX else 4)


def called(network: Any, *inputs: Array) -> Any:
    """Returns what a network says of arrays, without gradients."""
    with torch.no_grad():
        return network(*(torch.as_tensor(np.asarray(given, np.float32)) for given in inputs))


def said(network: Any, *inputs: Array) -> Array:
    found: Array = called(network, *inputs).double().numpy()
    return found


def scores(spec: Any, action: Array) -> Array:
    """Returns actions as critics read them."""
    return action if spec is BOX else 2 * np.eye(4)[action.astype(int)] - 1


def cross_entropy(logit: Array, reward: float) -> float:
    """Returns the cross entropy of a reward that is shared between the two nearest of 65 bins."""
    x = np.linspace(-10, 10, 65)
    bins = np.sign(x) * (np.exp(np.abs(x)) - 1)
    weight = np.array([np.interp(reward, bins, row) for row in np.eye(65)])
    return float(-weight @ (logit - np.log(np.exp(logit).sum())))


@SPECS
def test_encoder_loss_is_that_of_predictions_from_predicted_features(spec: Any) -> None:
    policy, data = made(spec), sequences(spec)
    encoder, target = policy.model.encoder, policy.update.targets.network['encoder']
    total = 0.0
    for i, (_, length, _) in enumerate(LENGTHS):
        z = said(encoder, data['obs'][i, :1])
        for t in range(length):
            pair = said(encoder.paired, z, scores(spec, data['action'][i, t : t + 1]))
            logit, z, end = (part.double().numpy() for part in called(encoder.predicted, pair))
            reached = said(target, data['next_obs'][i, t : t + 1])
            total += np.mean((z - reached) ** 2) + 0.1 * cross_entropy(logit[0], data['reward'][i, t])
            total += 0.1 * (end[0] - data['terminated'][i, t]) ** 2
    loss = policy.update.encoder_loss(policy.columns(data))
    np.testing.assert_allclose(loss.value.item(), total / len(LENGTHS), rtol=1e-4)


@pytest.mark.parametrize('reward', [-30_000.0, -1.0, 0.0, 0.3, 25.0, 30_000.0])
def test_a_reward_is_shared_between_its_two_nearest_bins(reward: float) -> None:
    logit = np.random.default_rng(0).normal(size=(1, 65))
    found = said(made().model.encoder.reward_loss, logit, np.array([reward]))
    np.testing.assert_allclose(
        found, [cross_entropy(logit[0].astype(np.float32).astype(float), reward)], rtol=1e-3
    )


def at_values(policy: Any, scale: tuple[float, float] = (2.0, 0.5)) -> Any:
    """Returns a policy at its first update of critics and actor, with scales of rewards."""
    policy.update.updates = FREQ
    policy.update.scale.copy_(torch.tensor(scale))
    return policy


@SPECS
def test_values_are_the_scaled_sums_of_rewards_and_the_smaller_value_behind_them(spec: Any) -> None:
    policy, data = at_values(made(spec, nstep=3)), sequences(spec)
    rows = policy.columns(data)
    online, target = policy.model, policy.update.targets.network
    losses, errors = [], []
    for i, (_, length, ending) in enumerate(LENGTHS):
        obs = rows['obs'][i].numpy()
        (t,) = np.flatnonzero((data['obs'][i, :length] == obs).all(1))
        assert ending or t == 0
        stop = min(t + 3, length)
        raw = said(target['actor'], said(target['encoder'], data['next_obs'][i, stop - 1 : stop]))
        action = np.tanh(raw)
        if spec is PLAIN:
            drawn = np.exp((raw + rows['gumbel'][i].numpy()) / 10)
            action = 2 * drawn / drawn.sum() - 1
        action = np.clip(action + np.clip(0.2 * rows['next_noise'][i].numpy(), -0.3, 0.3), -1, 1)
        if spec is PLAIN:
            action = scores(spec, action.argmax(1))
        behind = said(target['encoder'], data['next_obs'][i, stop - 1 : stop])
        value = said(target['critic'], said(target['encoder'].paired, behind, action)).min()
        wanted = sum(GAMMA ** (k - t) * data['reward'][i, k] for k in range(t, stop))
        wanted += GAMMA ** (stop - t) * 0.5 * value * (not data['terminated'][i, stop - 1])
        pair = said(
            online.encoder.paired,
            said(online.encoder, obs[None]),
            scores(spec, data['action'][i, t : t + 1]),
        )
        error = np.abs(wanted / 2 - said(online.critic, pair)[:, 0])
        losses.append(np.where(error < 1, error**2 / 2, error - 0.5).sum())
        errors.append(max(error.max(), 1))
    loss = policy.update.critic_loss(rows)
    np.testing.assert_allclose(loss.value.item(), np.mean(losses), rtol=1e-4)
    np.testing.assert_allclose(loss.error.numpy(), errors, rtol=1e-4)


@SPECS
def test_the_actor_raises_the_mean_of_both_values_by_small_outputs(spec: Any) -> None:
    policy, data = at_values(made(spec, learn=dict(action_weight=0.5))), sequences(spec)
    rows = policy.columns(data)
    online = policy.model
    features = said(online.encoder, rows['obs'].numpy())
    raw = said(online.actor, features)
    action = np.tanh(raw)
    if spec is PLAIN:
        drawn = np.exp((raw + rows['gumbel'].numpy()) / 10)
        action = 2 * drawn / drawn.sum(1, keepdims=True) - 1
    value = said(online.critic, said(online.encoder.paired, features, action))
    loss = policy.update.actor_loss(rows).value.item()
    np.testing.assert_allclose(loss, -value.mean() + 0.5 * (raw**2).mean(), rtol=1e-4)


def test_a_sequence_that_ends_with_its_episode_stands_for_all_of_its_steps() -> None:
    policy, data = (
        at_values(made()),
        random_sequences([(0, 4, 'truncated'), (0, 4, '')] * 200, 0, 4, (1, 1), None),
    )
    obs = policy.columns(data)['obs'].numpy()
    step = (data['obs'] == obs[:, None]).all(2).argmax(1)
    assert (step[1::2] == 0).all()
    assert (np.abs(np.bincount(step[::2]) - 50) < 25).all()


def test_encoder_and_values_learn_in_turns_with_target_networks_and_scales_that_are_set_between() -> None:
    policy, data = made(), random_rows(6, actions=None)
    update = policy.update
    size = float(np.abs(data['reward']).mean())
    scales, copied = [], []
    for _ in range(3 * FREQ):
        weights = [
            [p.clone() for p in getattr(policy.model, name).parameters()] for name in update.target_parts
        ]
        policy.learn_mode.forward(data)
        now = [list(getattr(policy.model, name).parameters()) for name in update.target_parts]
        changed = [not all(map(torch.equal, *pair)) for pair in zip(weights, now, strict=True)]
        assert changed == ([True, False, False] if len(scales) % (2 * FREQ) < FREQ else [False, True, True])
        scales.append(update.scale.tolist())
        online = dict(policy.model.critic.named_parameters())
        copied.append(
            all(torch.equal(p, online[n]) for n, p in update.targets.network['critic'].named_parameters())
        )
    np.testing.assert_allclose(scales, [[1, 1]] * FREQ + [[size, 1]] * 2 * FREQ, rtol=1e-5)
    assert copied == [True] * FREQ + [False] * FREQ + [True] * FREQ


def test_actions_and_targets_are_those_that_masks_allow() -> None:
    policy = made(MASKED)
    obs = zero_obs(MASKED.observation_space, 3)
    obs['action_mask'] = [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    for noise in (0.0, 5.0):
        output = policy.collect_mode.forward(obs, np.arange(3), noise_sigma=noise)
        np.testing.assert_array_equal(output['action'], [2, 1, 0])
    rows = dict(next_obs=policy.tensor(obs), next_noise=torch.randn(3, 4))
    action = policy.update.next_action(torch.zeros(3, 4), rows)
    np.testing.assert_array_equal(action.argmax(1), [2, 1, 0])


def test_a_loaded_state_goes_on_with_its_turn_and_its_scales() -> None:
    policy, loaded, data = made(), made(), random_rows(6, actions=None)
    for _ in range(FREQ + 1):
        policy.learn_mode.forward(data)
    loaded.learn_mode.load_state_dict(policy.learn_mode.state_dict())
    for _ in range(2 * FREQ):
        policy.learn_mode.forward(data)
        loaded.learn_mode.forward(data)
    for one, other in zip(policy.model.parameters(), loaded.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(policy.update.scale, loaded.update.scale)
