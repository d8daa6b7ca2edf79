"""ACER learns values by Retrace, and a policy whose steps stay in a trust region around its average."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from policy_toys import MASKED, PLAIN, apart, random_rows, random_sequences, small

from rlframe.data import Batch
from rlframe.data.observation import zero_obs

Array = NDArray[Any]
GAMMA, C, DELTA, BONUS = 0.9, 1.5, 0.05, 0.1
LENGTHS = [(0, 5, 'terminated'), (0, 3, 'truncated'), (0, 5, ''), (0, 1, 'terminated')]


def made(spec: Any = PLAIN, precision: str = 'fp32', **learn: Any) -> Any:
    learn = dict(c_clip_ratio=C, trust_region_value=DELTA, entropy_weight=BONUS) | learn
    policy = small('acer', spec, precision=precision, learn=learn, discount_factor=GAMMA)
    with torch.no_grad():
        list(policy.model.actor.parameters())[-2].mul_(200.0)  # probabilities that differ
    torch.manual_seed(0)
    return apart(policy, 0.5)


def sequences() -> Batch:
    """Returns four sequences of up to five steps, by another policy."""
    logit = np.random.default_rng(3).normal(size=(4, 5, 4)).astype(np.float32)
    return random_sequences(LENGTHS, 0, 5, (1, 1)).replace(logit=logit)


def softmax(logit: Array) -> Array:
    each = np.exp(logit - logit.max(-1, keepdims=True))
    found: Array = each / each.sum(-1, keepdims=True)
    return found


def seen(policy: Any, data: Batch) -> tuple[Array, Array, Array]:
    """Returns policy, average policy and values, in each step and behind the last one, [B, T + 1, A]."""
    obs = torch.as_tensor(np.concatenate([data['obs'][:, :1], data['next_obs']], 1))
    networks = policy.model.actor, policy.update.targets.network['actor'], policy.model.critic
    with torch.no_grad():
        pi, average, value = (network(obs.flatten(0, 1)).unflatten(0, obs.shape[:2]) for network in networks)
    return softmax(pi.double().numpy()), softmax(average.double().numpy()), value.double().numpy()


def retraced(policy: Any, data: Batch) -> Array:
    """Returns Q^ret of each real step by eq. 5, [B, T], and 0 for padding."""
    pi, _, value = seen(policy, data)
    target = np.zeros(data['reward'].shape)
    for i, (_, length, _) in enumerate(LENGTHS):
        for t in reversed(range(length)):
            state = pi[i, t + 1] @ value[i, t + 1]
            if t + 1 < length:
                action = data['action'][i, t + 1]
                ratio = pi[i, t + 1, action] / softmax(data['logit'][i, t + 1].astype(float))[action]
                state += min(1.0, ratio) * (target[i, t + 1] - value[i, t + 1, action])
            target[i, t] = data['reward'][i, t] + GAMMA * state * (not data['terminated'][i, t])
    return target


def prepared(policy: Any, data: Batch) -> Any:
    rows = policy.columns(data)
    with torch.no_grad():
        return rows | policy.update.retrace(rows)


def test_targets_are_the_recursion_of_retrace_over_each_sequence() -> None:
    policy, data = made(), sequences()
    target = prepared(policy, data)['target'].numpy() * data['mask']
    np.testing.assert_allclose(target, retraced(policy, data), rtol=1e-4, atol=1e-5)


def test_critic_loss_is_half_the_squared_error_of_the_actions_taken() -> None:
    policy, data = made(), sequences()
    _, _, value = seen(policy, data)
    chosen = np.take_along_axis(value[:, :-1], data['action'][..., None].astype(int), 2)[..., 0]
    each = ((retraced(policy, data) - chosen) ** 2 * data['mask']).sum(1) / data['mask'].sum(1)
    loss = policy.update.critic_loss(prepared(policy, data))
    np.testing.assert_allclose(loss.value.item(), 0.5 * each.mean(), rtol=1e-4)


@pytest.mark.parametrize('trust_region', [True, False])
def test_actor_follows_the_truncated_gradient_and_its_correction_into_the_trust_region(
    trust_region: bool,
) -> None:
    policy, data = made(trust_region=trust_region), sequences()
    pi, average, value = seen(policy, data)
    target, losses, projected = retraced(policy, data), [], 0
    for i, (_, length, _) in enumerate(LENGTHS):
        steps = []
        for t in range(length):
            p, q, a = pi[i, t], value[i, t], data['action'][i, t]
            rho, v = p / softmax(data['logit'][i, t].astype(float)), p @ q
            g = np.maximum(1 - C / rho, 0) * (q - v) - BONUS * (np.log(p) + 1)
            g[a] += min(C, rho[a]) * (target[i, t] - v) / p[a]
            k = -average[i, t] / p
            if trust_region:
                projected += k @ g > DELTA
                g = g - max(0.0, (k @ g - DELTA) / (k @ k)) * k
                assert k @ g <= DELTA + 1e-9
            steps.append(-p @ g)
        losses.append(np.mean(steps))
    assert projected > 0 or not trust_region
    loss = policy.update.actor_loss(prepared(policy, data))
    np.testing.assert_allclose(loss.value.item(), np.mean(losses), rtol=1e-4)


def test_losses_in_bfloat16_are_near_those_in_float32() -> None:
    data = sequences()
    metrics = [made(precision=precision).forward_learn(data) for precision in ('fp32', 'bf16')]
    for name in ('critic_loss', 'actor_loss', 'kl'):
        torch.testing.assert_close(*(float(each[name]) for each in metrics), rtol=0.05, atol=0.02)


def test_transitions_are_sequences_of_one_step() -> None:
    data = random_rows(logit=np.zeros((6, 4), np.float32))
    one = data.map(lambda column: column[:, None]).replace(mask=np.ones((6, 1), bool))
    first, second = (made().forward_learn(rows) for rows in (data, one))
    assert {name: float(value) for name, value in first.items()} == {
        name: float(value) for name, value in second.items()
    }


def test_actions_that_were_drawn_at_random_are_recorded_as_equally_likely_among_those_allowed() -> None:
    obs = zero_obs(MASKED.observation_space, 2)
    obs['action_mask'] = [[1, 1, 0, 0], [1, 1, 1, 1]]
    flags = np.zeros(2, bool)
    after: Any = SimpleNamespace(obs=obs, reward=np.zeros(2), terminated=flags, truncated=flags)
    rows = made(MASKED).process_transition(obs, Batch({'action': np.array([1, 3])}), after)
    np.testing.assert_array_equal(softmax(rows['logit']), [[0.5, 0.5, 0, 0], [0.25] * 4])
