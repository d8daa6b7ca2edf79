"""Targets, losses, gradients, priorities and exploration of DDPG, TD3 and SAC equal what their formulas say."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from policy_toys import apart, random_rows, small
from torch import nn

from rlframe.data import Batch, EnvSpec, TimeStep
from rlframe.errors import NonFiniteError
from rlframe.model.qac import squashed_gaussian
from rlframe.policy.qac import QACPolicy

OBS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
BOX = gymnasium.spaces.Box(np.array([-2, 0], np.float32), np.array([1, 10], np.float32))
FOUR = gymnasium.spaces.Discrete(4, start=2)
GAMMA, SIZE = 0.9, 6
CONTINUOUS = ('ddpg', 'td3', 'sac')
ALL = (*CONTINUOUS, 'sac_discrete')
IS = np.array([1, 0.5, 0.25, 1, 0.1, 0.7], np.float32)
VALUE_GAMMA = np.array([0.9, 0.81, 0.729, 0.9, 0.5, 0.0], np.float32)


def make(name: str, space: Any = None, seed: int = 0, **cfg: Any) -> QACPolicy:
    """Returns a policy whose target networks differ from the online ones."""
    model = {'activation': 'tanh'} | cfg.pop('model', {})
    space = space or (FOUR if name == 'sac_discrete' else BOX)
    spec = EnvSpec(OBS, space, name='Toy-v0')
    return apart(small(name, spec, seed=seed, model=model, discount_factor=GAMMA, **cfg))


def batch_of(name: str, seed: int = 0, **more: Any) -> Batch:
    return random_rows(SIZE, seed, 4 if name == 'sac_discrete' else None, **more)


def noise_of(policy: QACPolicy, draws: int) -> list[torch.Tensor]:
    """Returns the noise that the policy will draw in its next update."""
    rng = copy.deepcopy(policy.rng)
    return [torch.from_numpy(rng.standard_normal((SIZE, 2), np.float32)) for _ in range(draws)]


def next_value(policy: QACPolicy, name: str, data: Batch, i: int, noise: torch.Tensor) -> float:
    """What follows row ``i``, by the formulas of the papers."""
    obs, critic = torch.from_numpy(data['next_obs'][i])[None], policy.update.targets.network['critic']
    if name == 'sac_discrete':
        prob = torch.softmax(policy.model.actor(obs), 1)[0]
        values = critic(obs)[:, 0]
        alpha = float(policy.update.entropy.value)
        return sum(
            float(prob[a] * (min(values[0, a], values[1, a]) - alpha * prob[a].log())) for a in range(4)
        )
    if name == 'sac':
        mean, log_std = policy.model.actor(obs)
        action, log_prob = squashed_gaussian(mean, log_std, noise[i][None])
        return min(float(value) for value in critic(obs, action)) - float(
            policy.update.entropy.value * log_prob
        )
    action = policy.update.targets.network['actor'](obs)
    if name == 'td3':
        action = (action + (0.2 * noise[i]).clamp(-0.5, 0.5)).clamp(-1, 1)
    return min(float(value) for value in critic(obs, action))


@torch.no_grad()
def targets_of(policy: QACPolicy, name: str, data: Batch) -> list[float]:
    noise = noise_of(policy, 1)[0]
    found = []
    for i in range(SIZE):
        gamma = float(data['value_gamma'][i]) if 'value_gamma' in data else GAMMA
        follows = 0.0 if data['terminated'][i] else gamma * next_value(policy, name, data, i, noise)
        found.append(float(data['reward'][i]) + follows)
    return found


def values_of(critic: Any, name: str, data: Batch) -> torch.Tensor:
    """What each critic says of the actions that were taken, [critics, B]."""
    obs = torch.from_numpy(data['obs'])
    if name != 'sac_discrete':
        return critic(obs, torch.from_numpy(data['action']))
    return critic(obs)[:, range(SIZE), data['action'].astype(int)]


@pytest.mark.parametrize(
    ('name', 'nstep', 'weighted'), [*((name, True, True) for name in ALL), ('td3', False, False)]
)
def test_critic_loss_target_priority_and_gradient_equal_the_formula(
    name: str, nstep: bool, weighted: bool
) -> None:
    policy = make(name, priority=weighted, priority_IS_weight=weighted)
    more = ({'value_gamma': VALUE_GAMMA} if nstep else {}) | ({'IS': IS} if weighted else {})
    data = batch_of(name, **more)
    targets = torch.tensor(targets_of(policy, name, data))
    reference = copy.deepcopy(policy.model.critic)
    errors = targets - values_of(reference, name, data)
    assert len(errors) == (1 if name == 'ddpg' else 2)
    weights = torch.from_numpy(IS) if weighted else torch.ones(SIZE)
    loss = sum((weights * error**2).mean() for error in errors)
    loss.backward()
    metrics = policy.learn_mode.forward(data)
    assert float(metrics['critic_loss']) == pytest.approx(float(loss.detach()), rel=1e-4)
    assert float(metrics['target_q_value']) == pytest.approx(float(targets.mean()), rel=1e-4)
    for parameter, other in zip(policy.model.critic.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-4, atol=1e-6)
    if weighted:
        expected = errors.detach().abs().mean(0)
        torch.testing.assert_close(metrics['priority'], expected, rtol=1e-4, atol=1e-6)
    else:
        assert 'priority' not in metrics
    assert set(metrics) - {'priority'} == set(policy.learn_mode.monitor_vars())


def actor_loss(policy: QACPolicy, name: str, actor: nn.Module, obs: torch.Tensor, noise: Any) -> torch.Tensor:
    critic, alpha = policy.model.critic, 1.0  # init_alpha
    if name == 'sac_discrete':
        prob = torch.softmax(actor(obs), 1)
        value = torch.minimum(*critic(obs)).detach()
        return (prob * (alpha * prob.log() - value)).sum(1).mean()
    if name == 'sac':
        action, log_prob = squashed_gaussian(*actor(obs), noise)
        return (alpha * log_prob - torch.minimum(*critic(obs, action))).mean()
    return -critic(obs, actor(obs))[0].mean()


@pytest.mark.parametrize('name', ALL)
def test_actor_follows_the_gradient_of_its_loss_under_the_new_critic(name: str) -> None:
    policy, data = make(name), batch_of(name)
    before, noise = copy.deepcopy(policy.model.actor), noise_of(policy, 2)[1]
    metrics = policy.learn_mode.forward(data)
    loss = actor_loss(policy, name, before, torch.from_numpy(data['obs']), noise)
    gradients = torch.autograd.grad(loss, list(before.parameters()))
    assert float(metrics['actor_loss']) == pytest.approx(float(loss.detach()), rel=1e-4)
    rate = policy.update.optimizers['actor'].learning_rate
    for parameter, old, gradient in zip(
        policy.model.actor.parameters(), before.parameters(), gradients, strict=True
    ):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
        moved = (parameter.detach() - old)[gradient.abs() > 1e-5]  # the first step of Adam
        expected = -rate * gradient[gradient.abs() > 1e-5].sign()
        torch.testing.assert_close(moved, expected.detach(), rtol=0.02, atol=1e-6)


def test_delayed_actor_and_targets_move_every_second_time() -> None:
    policy = make('td3')
    moved = []
    for _ in range(5):
        before = copy.deepcopy((policy.model.actor, policy.update.targets.network, policy.model.critic))
        metrics = policy.learn_mode.forward(batch_of('td3'))
        after = policy.model.actor, policy.update.targets.network, policy.model.critic
        moved.append([not same(*pair) for pair in zip(before, after, strict=True)])
        assert ('actor_loss' in metrics) == moved[-1][0]
    assert moved == [[True, True, True], [False, False, True]] * 2 + [[True, True, True]]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize('name', ['td3', 'sac'])
def test_targets_move_by_a_share_and_can_be_set_equal(name: str) -> None:
    policy = make(name, learn={'target_theta': 0.25})
    parts = ('critic',) if 'sac' in name else ('actor', 'critic')
    assert set(policy.update.targets.network) == set(parts)
    before = copy.deepcopy(policy.update.targets.network)
    policy.learn_mode.forward(batch_of(name))
    for part in parts:
        online = getattr(policy.model, part).parameters()
        rows = zip(
            before[part].parameters(), policy.update.targets.network[part].parameters(), online, strict=True
        )
        for old, new, followed in rows:
            torch.testing.assert_close(new, 0.75 * old + 0.25 * followed.detach())
    policy.reset_targets()
    for part in parts:
        assert same(policy.update.targets.network[part], getattr(policy.model, part))


@pytest.mark.parametrize(('name', 'target', 'grows'), [('sac', -50.0, False), ('sac_discrete', 50.0, True)])
def test_alpha_grows_where_entropy_is_missing_and_is_used_at_once(
    name: str, target: float, grows: bool
) -> None:
    policy = make(name, learn={'target_entropy': target, 'learning_rate_alpha': 0.01, 'init_alpha': 0.5})
    first = policy.learn_mode.forward(batch_of(name))
    assert float(first['alpha']) == pytest.approx(0.5)
    expected = 0.5 * math.exp(0.01 if grows else -0.01)  # the first step of Adam
    assert float(policy.update.entropy.value) == pytest.approx(expected, rel=1e-3)
    assert float(policy.learn_mode.forward(batch_of(name))['alpha']) == pytest.approx(expected, rel=1e-3)


def test_target_entropy_is_that_of_the_action_space() -> None:
    assert make('sac').update.entropy.target == -2
    assert make('sac_discrete').update.entropy.target == pytest.approx(math.log(2)), (
        'half of what 4 actions can have'
    )


def test_fixed_alpha_stays() -> None:
    policy = make('sac', learn={'alpha': 0.3})
    for _ in range(3):
        assert float(policy.learn_mode.forward(batch_of('sac'))['alpha']) == pytest.approx(0.3)
    state = policy.learn_mode.state_dict()
    assert 'log_alpha' not in state and 'alpha' not in state['optimizers']


# acting


@pytest.mark.parametrize('name', ['td3', 'sac'])
def test_actions_are_the_networks_in_the_buffer_and_the_envs_outside(name: str) -> None:
    policy = make(name)
    obs = np.random.default_rng(1).normal(size=(500, 3)).astype(np.float32)
    settings = policy.command_mode.get_setting_collect({'envstep': 0})
    output = policy.collect_mode.forward(obs, np.arange(500), **settings)
    step = TimeStep(obs, np.zeros(500, np.float32), *np.zeros((2, 500), bool), [], np.arange(500))
    unit = policy.collect_mode.process_transition(obs, output, step)['action']
    assert unit.shape == (500, 2) and unit.dtype == np.float32 and np.abs(unit).max() <= 1
    middle, half = np.array([-0.5, 5]), np.array([1.5, 5])
    np.testing.assert_allclose(output['action'], middle + unit * half, rtol=1e-5, atol=1e-5)
    assert all(BOX.contains(action) for action in output['action'])
    drawn = Batch(action=np.array([[-2, 10], [1, 5]], np.float32))  # at random, by someone else
    rows = policy.collect_mode.process_transition(obs[:2], drawn, step)
    np.testing.assert_allclose(rows['action'], [[-1, 1], [1, 0]], atol=1e-6)


def test_gaussian_noise_has_the_sigma_of_the_schedule() -> None:
    sigma = dict(type='linear', start=0.2, end=0.1, decay=100)
    policy = make('td3', collect={'noise_sigma': sigma})
    nn.init.zeros_(policy.model.actor.layers[-1].weight)
    nn.init.constant_(policy.model.actor.layers[-1].bias, 0.1)
    obs, env_id = np.zeros((4000, 3), np.float32), np.arange(4000)
    for envstep, expected in ((0, 0.2), (50, 0.15), (1000, 0.1)):
        settings = policy.command_mode.get_setting_collect({'envstep': envstep})
        unit = policy.collect_mode.forward(obs, env_id, **settings)['unit_action']
        assert unit.std() == pytest.approx(expected, rel=0.05)
        assert unit.mean() == pytest.approx(math.tanh(0.1), abs=0.01)
    loud = policy.collect_mode.forward(obs, env_id, noise_sigma=5.0)['unit_action']
    assert np.abs(loud).max() == 1, 'clipped'


def test_sac_explores_by_its_own_distribution_and_evaluates_its_mean() -> None:
    policy = make('sac')
    last = policy.model.actor.layers[-1]
    nn.init.zeros_(last.weight)
    with torch.no_grad():
        last.bias.copy_(torch.tensor([0.3, -0.2, math.log(0.5), math.log(0.1)]))
    obs, env_id = np.zeros((4000, 3), np.float32), np.arange(4000)
    unsquashed = np.arctanh(policy.collect_mode.forward(obs, env_id)['unit_action'].astype(np.float64))
    np.testing.assert_allclose(unsquashed.mean(0), [0.3, -0.2], atol=0.03)
    np.testing.assert_allclose(unsquashed.std(0), [0.5, 0.1], rtol=0.05)
    best = policy.eval_mode.forward(obs, env_id)['unit_action']
    np.testing.assert_allclose(best, np.tile(np.tanh([0.3, -0.2]), (4000, 1)), rtol=1e-5)


def test_discrete_sac_draws_from_its_softmax_and_counts_actions_as_the_env_does() -> None:
    policy = make('sac_discrete')
    logit = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    nn.init.zeros_(policy.model.actor.layers[-1].weight)
    policy.model.actor.layers[-1].bias.data.copy_(logit)
    obs, env_id = np.zeros((8000, 3), np.float32), np.arange(8000)
    action = policy.collect_mode.forward(obs, env_id)['action']
    shares = np.bincount(action - 2, minlength=4) / 8000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.02)
    assert (policy.eval_mode.forward(obs, env_id)['action'] == 5).all()
    step = TimeStep(obs, np.zeros(8000, np.float32), *np.zeros((2, 8000), bool), [], env_id)
    stored = policy.collect_mode.process_transition(obs, Batch(action=action), step)['action']
    assert stored.dtype == np.uint8
    np.testing.assert_array_equal(stored, action - 2)


def test_correlated_noise_is_forgotten_by_resets_of_collection_only_and_is_part_of_the_state() -> None:
    options = {'noise_correlation': 0.99, 'noise_sigma': 0.5}
    policy, other = make('ddpg', collect=options), make('ddpg', seed=1, collect=options)
    obs, env_id = np.zeros((3, 3), np.float32), np.arange(3)
    settings = policy.command_mode.get_setting_collect({'envstep': 0})
    policy.collect_mode.forward(obs, env_id, **settings)
    other.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    first = policy.collect_mode.forward(obs, env_id, **settings)['unit_action']
    np.testing.assert_array_equal(first, other.collect_mode.forward(obs, env_id, **settings)['unit_action'])
    policy.eval_mode.reset(np.array([0]))
    policy.eval_mode.reset(None)
    policy.collect_mode.reset(np.array([1]))
    kept = policy._noise.state_dict()['kept'][:, 0]
    np.testing.assert_allclose(kept, [0.99, 0, 0.99])


# what is refused


@pytest.mark.parametrize('name', ['td3', 'sac_discrete'])
def test_update_that_is_not_finite_names_the_loss_and_the_right_learning_rate(name: str) -> None:
    data = batch_of(name)
    data['reward'][0] = np.nan
    with raises(NonFiniteError):
        make(name).learn_mode.forward(data)
    policy = make(name, learn={'nan_policy': 'skip'}, priority=True)
    before = copy.deepcopy(policy.model.critic)
    metrics = policy.learn_mode.forward(data)
    assert same(before, policy.model.critic) and bool(metrics['priority'].isfinite().all())
    assert float(metrics['skipped_share']) == 1
