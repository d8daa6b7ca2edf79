"""Munchausen's targets and IQN's quantiles equal what their formulas say; Rainbow is C51 with all its switches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fakes import config_pair
from gymnasium import spaces
from policy_toys import apart, random_rows

from rlframe.config import compile_config
from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.model.q_net import ImplicitQNet
from rlframe.policy import create_policy
from rlframe.policy.c51 import project
from rlframe.policy.qrdqn import quantile_huber_loss
from rlframe.policy.r2d2 import unscale

OBS = spaces.Box(-1, 1, (3,), np.float32)
PLAIN: Any = EnvSpec(OBS, spaces.Discrete(4), name='Toy-v0')
MASKED: Any = EnvSpec(
    spaces.Dict(observation=OBS, action_mask=spaces.MultiBinary(4)), spaces.Discrete(4), name='Toy-v0'
)
TAU, ALPHA, GAMMA = 0.05, 0.8, 0.9
ATOMS = {'qrdqn': {'num_quantiles': 5}, 'iqn': {'num_quantiles': 5}, 'c51': {'n_atom': 9}}


def make(name: str, spec: EnvSpec, **cfg: Any) -> Any:
    torch.manual_seed(1)
    model = {'encoder_hidden_size_list': [8], **ATOMS.get(name, {})}
    cfg = {'type': name, 'cuda': False, 'model': model, 'discount_factor': GAMMA, **cfg}
    return apart(create_policy(cfg, spec, seed=0), 1.5)


def obs_of(spec: EnvSpec, rng: np.random.Generator, size: int) -> Any:
    seen = rng.normal(size=(size, 3)).astype(np.float32)
    if spec is PLAIN:
        return seen
    row = np.zeros(size, [('action_mask', np.int8, 4), ('observation', np.float32, 3)])
    row['observation'], row['action_mask'] = seen, [[1, 1, 0, 1]] * size
    return row


def batch_of(spec: EnvSpec, size: int = 6) -> Batch:
    rng = np.random.default_rng(0)
    return random_rows(size, actions=2).replace(obs=obs_of(spec, rng, size), next_obs=obs_of(spec, rng, size))


def soft(value: np.ndarray, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns softmax(value / tau) of the allowed actions, and tau times its logarithm, of one state."""
    scaled = np.where(allowed, value / TAU, -np.inf)
    log = scaled - scaled.max() - np.log(np.exp(scaled - scaled.max()).sum())
    return np.exp(log), TAU * log


@pytest.mark.parametrize('spec', [PLAIN, MASKED], ids=['all actions', 'a mask'])
@pytest.mark.parametrize('name', ['dqn', 'qrdqn', 'iqn', 'c51'])
def test_munchausen_target_is_that_of_the_paper(name: str, spec: EnvSpec) -> None:
    policy = make(name, spec, entropy_tau=TAU, m_alpha=ALPHA)
    rows = policy.columns(batch_of(spec, 30))
    with torch.no_grad():
        now = policy.valued(policy.target_model, rows, 'obs').double()
        then = policy.valued(policy.target_model, rows, 'next_obs').double()
        means = [policy.expected(output.float()).double().numpy() for output in (now, then)]
    allowed = np.array([True, True, spec is PLAIN, True])
    target = policy.target(rows).numpy()
    bonuses = []
    for i in range(len(target)):
        bonuses.append(ALPHA * max(soft(means[0][i], allowed)[1][int(rows['action'][i])], -1.0))
        reward = float(rows['reward'][i]) + bonuses[-1]
        discount = 0.0 if bool(rows['terminated'][i]) else GAMMA
        share, log = soft(means[1][i], allowed)
        expected: Any = 0.0
        for a in np.flatnonzero(allowed):
            if name == 'c51':
                moved = torch.tensor([reward - discount * log[a]], dtype=torch.float32)
                part = project(
                    then[i, a].softmax(0)[None].float(),
                    moved,
                    torch.tensor([discount]),
                    policy._returns.support,
                )
                expected = expected + share[a] * part[0].numpy()
            else:
                expected = expected + share[a] * (then[i, a].numpy() - log[a])
        expected = expected if name == 'c51' else reward + discount * expected
        np.testing.assert_allclose(target[i], expected, rtol=1e-3, atol=1e-4)
    assert -ALPHA in np.round(bonuses, 6) and max(bonuses) > -ALPHA, 'some are at the lower bound, some above'


@pytest.mark.parametrize('rescale', [True, False])
def test_munchausen_of_a_sequence_is_that_of_each_step(rescale: bool) -> None:
    cfg = dict(entropy_tau=TAU, m_alpha=ALPHA, value_rescale=rescale)
    policy = make('r2d2', PLAIN, **cfg)
    generator = torch.Generator().manual_seed(0)
    online, target = torch.randn(2, 2, 4, 4, generator=generator)
    action = torch.tensor([[0, 1, 2], [3, 0, 1]])
    reached, paid = policy._reached(online, target, None, action)
    raw = (unscale(target) if rescale else target).double().numpy()
    for i, t in np.ndindex(2, 4):
        share, log = soft(raw[i, t], np.ones(4, bool))
        assert float(reached[i, t]) == pytest.approx(float((share * (raw[i, t] - log)).sum()), abs=1e-4)
        if t < 3:
            bonus = ALPHA * max(log[int(action[i, t])], -1.0)
            assert float(paid[i, t]) == pytest.approx(bonus, abs=1e-4)


def test_implicit_network_is_the_product_of_equation_4() -> None:
    torch.manual_seed(0)
    net, obs, tau = (
        ImplicitQNet(PLAIN, 3, 4, encoder_hidden_size_list=[8], dueling=False),
        torch.randn(2, 3),
        0.3,
    )
    waves = torch.tensor([np.cos(np.pi * i * tau) for i in range(4)], dtype=torch.float32)
    embedded = (net.embedding.weight @ waves + net.embedding.bias).relu()
    expected = net.advantage_head(net.encoder(obs) * embedded)
    torch.testing.assert_close(net(obs, torch.full((2, 1), tau))[:, :, 0], expected)
    even = torch.tensor([[1 / 6, 3 / 6, 5 / 6]]).expand(2, -1)
    torch.testing.assert_close(net(obs), net(obs, even))


def test_loss_of_iqn_weighs_the_errors_by_the_fractions_that_were_drawn() -> None:
    policy = make('iqn', PLAIN)
    rows = policy.columns(batch_of(PLAIN))
    assert rows['obs_tau'].shape == (6, 5) and not bool((rows['obs_tau'] == rows['next_obs_tau']).any())
    losses = policy.loss(rows)[0].detach()
    with torch.no_grad():
        quantiles = policy.chosen(policy.valued(policy.model, rows, 'obs'), rows['action'])
        wanted = policy.target(rows)
    for i in range(6):
        total = 0.0
        for tau, quantile in zip(rows['obs_tau'][i].tolist(), quantiles[i].tolist(), strict=True):
            for sample in wanted[i].tolist():
                error = sample - quantile
                huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                total += abs(tau - (error < 0)) * huber / len(wanted[i])
        assert float(losses[i]) == pytest.approx(total, rel=1e-4)
    again = make('iqn', PLAIN)
    assert bool((again.columns(batch_of(PLAIN))['obs_tau'] == rows['obs_tau']).all()), 'drawn by the seed'


def test_midpoints_are_the_default_fractions_of_the_loss() -> None:
    quantiles, target = torch.randn(3, 4), torch.randn(3, 2)
    tau = torch.tensor([[1 / 8, 3 / 8, 5 / 8, 7 / 8]]).expand(3, -1)
    torch.testing.assert_close(
        quantile_huber_loss(quantiles, target, 1.0, tau), quantile_huber_loss(quantiles, target)
    )


def test_weighted_losses_need_a_replay_buffer_that_gives_weights() -> None:
    weighted = dict(policy='rainbow', policy_=dict(priority=True, priority_IS_weight=True))
    said = r"replay_buffer\.type: policy\.priority_IS_weight=True .*got 'naive', expected 'advanced' or 'elastic', or"
    with pytest.raises(ConfigError, match=said):
        compile_config(*config_pair(**weighted, buffer=dict(type='naive')))
    compile_config(*config_pair(**weighted, buffer=dict(type='advanced')))
    compile_config(*config_pair(policy='rainbow', policy_=dict(priority_IS_weight=False)))
