"""The losses of QR-DQN and C51 equal what their formulas say, row by row and number by number; noise is as declared."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_toys import PLAIN, apart, random_rows, small

from rlframe.data import EnvSpec
from rlframe.errors import ConfigError
from rlframe.model.core import NoisyLinear
from rlframe.policy import create_policy
from rlframe.policy.parts.outputs import chosen, project, quantile_huber_loss


def projected(probability: list[float], reward: float, discount: float, support: list[float]) -> list[float]:
    """Algorithm 1 of the paper, one atom at a time."""
    low, high = support[0], support[-1]
    gap = (high - low) / (len(support) - 1)
    result = [0.0] * len(support)
    for p, z in zip(probability, support, strict=True):
        place = (min(max(reward + discount * z, low), high) - low) / gap
        below = min(int(np.floor(place)), len(support) - 1)
        above = min(below + 1, len(support) - 1)
        share = place - below
        result[below] += p * (1 - share)
        result[above] += p * share
    return result


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 9),
    st.floats(-5, 5),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    st.floats(-3, 3),
    st.floats(0.1, 6),
    st.integers(0, 2**32 - 1),
)
def test_projection_equals_the_algorithm_of_the_paper(
    atoms: int, reward: float, discount: float, low: float, width: float, seed: int
) -> None:
    support = np.linspace(low, low + width, atoms)
    probability = np.random.default_rng(seed).dirichlet(np.ones(atoms))
    got = project(
        torch.tensor(probability)[None],
        torch.tensor([reward], dtype=torch.float64),
        torch.tensor([discount], dtype=torch.float64),
        torch.tensor(support),
    )[0].numpy()
    np.testing.assert_allclose(got.sum(), 1, atol=1e-9)
    np.testing.assert_allclose(got, projected(list(probability), reward, discount, list(support)), atol=1e-9)


SUPPORTS = [
    *((-10.0, 10.0, 51), (1000.0, 1010.0, 101), (-1010.0, -1000.0, 101), (0.0, 500.0, 51), (0.1, 0.7, 7)),
    *((-1e6, 1e6, 201), (99_990.0, 100_000.0, 21), (-300.0, 300.0, 2), (0.0, 1e-3, 51)),
]
ACTOR = EnvSpec(PLAIN.observation_space, gymnasium.spaces.Box(-1, 1, (2,), np.float32), name='Toy-v0')
OF_ATOMS = {'c51': PLAIN, 'rainbow': PLAIN, 'xqc': ACTOR}


@pytest.mark.parametrize(('low', 'high', 'count'), SUPPORTS)
@pytest.mark.parametrize('name', OF_ATOMS)
def test_targets_of_atoms_lose_no_probability_wherever_the_support_is(
    name: str, low: float, high: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {'v_min': low, 'v_max': high, 'n_atom': count, 'encoder_hidden_size_list': [8]}
    policy: Any = create_policy({'type': name, 'cuda': False, 'model': model}, OF_ATOMS[name])
    is_actor = OF_ATOMS[name] is ACTOR
    seen: list[Any] = []

    def noted(probability: Any, reward: Any, discount: Any, support: Any) -> Any:
        """Also moves by all of the support, to both of its ends and beyond."""
        size = len(probability)
        reward = torch.linspace(1.5 * (low - high), 1.5 * (high - low), size) + reward
        seen.append((probability, reward, discount, project(probability, reward, discount, support)))
        return seen[-1][-1]

    monkeypatch.setattr('rlframe.policy.parts.outputs.project', noted)
    data = random_rows(64, **({'actions': None} if is_actor else {}))
    if name == 'rainbow':
        data = data.replace(IS=np.ones(64, np.float32), value_gamma=np.full(64, 0.97, np.float32))
    policy.learn_mode.forward(data)
    assert len(seen) == 1
    atoms = np.linspace(low, high, count)
    for probability, reward, discount, got in zip(*(part.double().numpy() for part in seen[0]), strict=True):
        wanted = projected(list(probability), float(reward), float(discount), list(atoms))
        assert got.sum() == pytest.approx(probability.sum(), abs=1e-6)
        assert got @ atoms == pytest.approx(np.dot(wanted, atoms), rel=1e-6, abs=3e-7 * (high - low))


@pytest.mark.parametrize('name', ['c51', 'xqc'])
def test_atoms_that_float32_cannot_tell_apart_are_refused(name: str) -> None:
    with raises(ConfigError):
        create_policy(
            {'type': name, 'model': {'v_min': 1e6, 'v_max': 1e6 + 1, 'n_atom': 51}},
            PLAIN if name == 'c51' else ACTOR,
        )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 3), st.integers(0, 2**32 - 1))
def test_quantile_loss_and_its_derivative_are_those_of_the_formula(
    count: int, samples: int, kappa: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    quantiles, target = (
        torch.tensor(rng.normal(size=(2, count)), requires_grad=True),
        rng.normal(size=(2, samples)),
    )
    wanted, share = torch.tensor(target), torch.tensor([1.0, 0.3])
    error = wanted[:, None, :] - quantiles[:, :, None]
    huber = torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction='none', delta=kappa)
    tau = (torch.arange(count)[:, None] + 0.5) / count
    formula = ((tau - (error < 0).float()).abs() * huber / kappa).mean(2).sum(1)
    expected = torch.autograd.grad((formula * share).sum(), quantiles)[0]
    loss = quantile_huber_loss(quantiles, wanted, kappa)
    torch.testing.assert_close(loss, formula, rtol=1e-5, atol=1e-6)
    got = torch.autograd.grad((loss * share).sum(), quantiles)[0]
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ('name', 'double', 'nstep'),
    [('qrdqn', True, 3), ('qrdqn', False, 1), ('c51', True, 1), ('c51', False, 3)],
)
def test_target_takes_the_action_of_the_best_mean_and_nothing_behind_a_terminal(
    name: str, double: bool, nstep: int
) -> None:
    policy = apart(small(name, double=double, discount_factor=0.9, nstep=nstep), 0.3)
    more = {'value_gamma': np.full(6, 0.9**nstep, np.float32)} if nstep > 1 else {}
    data = random_rows(**more)
    with torch.no_grad():
        target = policy.update.target(policy.columns(data)).numpy()
    for i, row in enumerate(data):
        obs = torch.from_numpy(row['next_obs'])[None]
        with torch.no_grad():
            there = policy.update.targets.network(obs)
            judge = policy.model if double else policy.update.targets.network
            best = int(policy.update.output(judge, obs).mean()[0].argmax())
        discount = 0.0 if row['terminated'] else 0.9**nstep
        if name == 'qrdqn':
            expected = row['reward'] + discount * there[0, best].numpy()
        else:
            support = policy.update.support.tolist()
            expected = projected(there[0, best].softmax(0).tolist(), float(row['reward']), discount, support)
        np.testing.assert_allclose(target[i], expected, rtol=1e-4, atol=1e-5)


def test_priority_of_qrdqn_is_the_distance_of_the_means() -> None:
    policy = small('qrdqn', priority=True)
    data = random_rows()
    with torch.no_grad():
        rows = policy.columns(data)
        said = chosen(policy.model(rows['obs']), rows['action']).mean(1)
        expected = (policy.update.target(rows).mean(1) - said).abs()
    assert bool((expected > 0).all())
    torch.testing.assert_close(policy.learn_mode.forward(data)['priority'], expected)


def test_priority_of_c51_is_the_divergence_of_what_it_says_from_its_target() -> None:
    policy = small('c51', model={'v_min': -2.0, 'v_max': 2.0, 'n_atom': 9}, priority=True)
    data = random_rows()
    with torch.no_grad():
        rows = policy.columns(data)
        said = chosen(policy.model(rows['obs']), rows['action']).softmax(1).double().numpy()
        target = policy.update.target(rows).double().numpy()
    metrics = policy.learn_mode.forward(data)
    expected = [
        sum(p * np.log(p / q) for p, q in zip(*pair, strict=True) if p > 0)
        for pair in zip(target, said, strict=True)
    ]
    np.testing.assert_allclose(metrics['priority'], expected, rtol=1e-3)
    entropy = -sum(p * np.log(p) for p in target.ravel() if p > 0) / len(data)
    assert float(metrics['total_loss']) == pytest.approx(np.mean(expected) + entropy, rel=1e-4)
    assert entropy > 0.01, 'so that cross entropy and divergence differ'


def test_noise_has_the_declared_spread_and_none_is_drawn_in_evaluation() -> None:
    torch.manual_seed(0)
    layer = NoisyLinear(16, 4)
    features = torch.zeros(1, 16)
    draws = torch.stack([layer(features)[0] for _ in range(1500)]).detach()
    # f(x) = sign(x) sqrt|x| of a normal x has mean 0 and variance E|x| = sqrt(2 / pi)
    np.testing.assert_allclose(draws.mean(0), layer.bias_mean.detach(), atol=0.02)
    np.testing.assert_allclose(draws.std(0), 0.5 / 4 * (2 / np.pi) ** 0.25, rtol=0.08)
    layer.eval()
    state = torch.get_rng_state()
    assert torch.equal(layer(features), layer(features)) and torch.equal(state, torch.get_rng_state())


def test_noisy_policy_explores_while_it_collects_and_not_while_it_is_evaluated() -> None:
    policy = small('dqn', model={'noisy': True})
    obs, env_id = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32), np.arange(64)
    collected = [policy.collect_mode.forward(obs, env_id)['action'].tolist() for _ in range(5)]
    evaluated = [policy.eval_mode.forward(obs, env_id)['action'].tolist() for _ in range(5)]
    assert len({tuple(actions) for actions in collected}) > 1
    assert len({tuple(actions) for actions in evaluated}) == 1
    assert policy.model.training
