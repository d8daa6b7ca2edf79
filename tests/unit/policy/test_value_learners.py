"""Munchausen's targets and IQN's quantiles equal what their formulas say; importance weights need a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import config_pair
from policy_toys import MASKED, PLAIN, apart, random_rows, small

from rlframe.config import compile_config
from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.model.q_net import ImplicitQNet
from rlframe.policy.parts.outputs import quantile_huber_loss

TAU, ALPHA, GAMMA = 0.05, 0.8, 0.9
ATOMS = {'iqn': {'num_quantiles': 5}}


def make(name: str, spec: EnvSpec, **cfg: Any) -> Any:
    return apart(small(name, spec, seed=1, model=ATOMS.get(name), discount_factor=GAMMA, **cfg), 1.5)


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
def test_munchausen_target_is_that_of_the_paper(spec: EnvSpec) -> None:
    policy = make('mdqn', spec, entropy_tau=TAU, m_alpha=ALPHA)
    rows = policy.columns(batch_of(spec, 30))
    with torch.no_grad():
        now, then = (
            policy.update.targets.network(rows[name]).double().numpy() for name in ('obs', 'next_obs')
        )
        target = policy.update.target(rows).numpy()
    allowed = np.array([True, True, spec is PLAIN, True])
    bonuses = []
    for i in range(len(target)):
        bonuses.append(ALPHA * max(soft(now[i], allowed)[1][int(rows['action'][i])], -1.0))
        share, log = soft(then[i], allowed)
        following = sum(share[a] * (then[i, a] - log[a]) for a in np.flatnonzero(allowed))
        discount = 0.0 if bool(rows['terminated'][i]) else GAMMA
        expected = float(rows['reward'][i]) + bonuses[-1] + discount * following
        np.testing.assert_allclose(target[i], expected, rtol=1e-3, atol=1e-4)
    assert -ALPHA in np.round(bonuses, 6) and max(bonuses) > -ALPHA, 'some are at the lower bound, some above'


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
    with torch.no_grad():
        output = policy.update.output(policy.model, rows['obs'], rows['obs_tau']).gather(rows['action'])
        quantiles, wanted = output.value, policy.update.target(rows)
        assert float(policy.update.loss(rows).value) == pytest.approx(
            float(output.fit(wanted).loss), rel=1e-5
        )
    for i in range(6):
        total = 0.0
        for tau, quantile in zip(rows['obs_tau'][i].tolist(), quantiles[i].tolist(), strict=True):
            for sample in wanted[i].tolist():
                error = sample - quantile
                huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                total += abs(tau - (error < 0)) * huber / len(wanted[i])
        alone = 6.0 * torch.eye(6)[i]  # the importance of one row
        assert float(output.fit(wanted, alone).loss) == pytest.approx(total, rel=1e-4)
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
    with raises(ConfigError):
        compile_config(*config_pair(**weighted, buffer=dict(type='naive')))
    compile_config(*config_pair(**weighted, buffer=dict(type='advanced')))
    compile_config(*config_pair(policy='rainbow', policy_=dict(priority_IS_weight=False)))
