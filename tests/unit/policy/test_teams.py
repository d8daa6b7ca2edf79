"""Policies of teams: joint values and losses by hand, agents that are absent, groups, and the two-step game."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from agent_games import MATRIX
from error_texts import raises
from exported import as_eval_builds_it, trained
from fakes import config_pair
from gymnasium import spaces

import rlframe
from rlframe import config
from rlframe.data import Batch, EnvSpec
from rlframe.data.observation import pack, zero_obs
from rlframe.data.timestep import spec_of
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.team_env import Team
from rlframe.envs.two_step import PAYOFF
from rlframe.errors import ConfigError, IncompatibleError, ObservationError
from rlframe.export import export_policy
from rlframe.pipeline import SerialPipeline
from rlframe.policy import create_policy
from rlframe.policy.parts.actions import Choices
from rlframe.worker import SampleSerialCollector

GAME = 'rlframe.envs.two_step'
CROWD: dict[str, Any] = dict(game='agent_games:crowd', mask='obs', lives=[(0, 6), (2, 6), (0, 3)])
"""A game whose second agent comes late, and whose third leaves early."""
VALUED = ['vdn', 'qmix']
POLICIES = [*VALUED, 'wqmix', 'qtran', 'mappo', 'coma']


def spec_of_team(**kwargs: Any) -> EnvSpec:
    return spec_of(Team(**kwargs))


def random_obs(spec: EnvSpec, count: int, seed: int = 0) -> Any:
    """Returns random observations of a team, some of whose agents are absent, [count]."""
    space: Any = spec.observation_space
    space.seed(seed)
    obs = zero_obs(space, count)
    for row in range(count):
        obs[row] = pack(space, space.sample())
    if 'action_mask' in obs.dtype.names:
        obs['action_mask'] = 1
    obs['rewards'] = obs['state'] = 0
    obs['state'] = np.random.default_rng(seed).normal(size=obs['state'].shape)
    return obs


def rows_of(spec: EnvSpec, count: int = 5) -> Batch:
    rng = np.random.default_rng(0)
    action: Any = spec.action_space
    return Batch(
        obs=random_obs(spec, count, 1),
        next_obs=random_obs(spec, count, 2),
        action=rng.integers(action.nvec, size=(count, len(action.nvec))).astype(np.uint8),
        reward=rng.normal(size=count).astype(np.float32),
        terminated=np.arange(count) % 3 == 0,
        truncated=np.zeros(count, bool),
    )


def numbers(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy().astype(np.float64)


def mixed(policy: Any, network: Any, chosen: Any, obs: Any) -> Any:
    """Returns the team's value of the values of what agents chose, [B, A], by the paper of the policy, in NumPy."""
    chosen = chosen * obs['present']
    if type(network.mixer).__name__ == 'Sum':
        return chosen.sum(1)
    mixer, state = network.mixer, torch.from_numpy(obs['state'].copy())
    if type(mixer).__name__ == 'FreeMixer':
        return numbers(mixer(torch.from_numpy(chosen.astype(np.float32)), state))
    first, bias, last, end = (
        numbers(part(state))
        for part in (mixer.first_weight, mixer.first_bias, mixer.last_weight, mixer.last_bias)
    )
    hidden = np.einsum('ba,bas->bs', chosen, np.abs(first).reshape(len(obs), chosen.shape[1], -1)) + bias
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
    return (hidden * np.abs(last)).sum(1) + end[:, 0]


@pytest.mark.parametrize('name', VALUED)
def test_team_learns_the_value_of_joint_actions_from_those_of_its_agents(name: str) -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type=name, discount_factor=0.9, groups='separate'), spec)
    with torch.no_grad():
        for parameter in policy.update.targets.network.parameters():
            parameter.add_(0.1)
    data = rows_of(spec)
    found = policy.update.loss(policy.columns(data))

    online, target = policy.model, policy.update.targets.network
    value, next_value, judged = (
        numbers(network(policy.tensor(data[part]))).reshape(5, 3, 4)
        for network, part in ((online, 'obs'), (target, 'next_obs'), (online, 'next_obs'))
    )
    taken = np.take_along_axis(value, data['action'][:, :, None].astype(int), 2)[:, :, 0]
    best = np.take_along_axis(next_value, judged.argmax(2)[:, :, None], 2)[:, :, 0]
    next_joint = mixed(policy, target, best, data['next_obs'])
    wanted = data['reward'] + 0.9 * ~data['terminated'] * next_joint
    error = wanted - mixed(policy, online, taken, data['obs'])
    np.testing.assert_allclose(numbers(found.error), error, atol=1e-5)
    np.testing.assert_allclose(float(found.value.detach()), np.square(error).mean(), rtol=1e-5)


def of_each(values: Any, choice: Any) -> Any:
    """Returns the values of the choices of agents, [B, A, N] and [B, A] to [B, A]."""
    return np.take_along_axis(values, choice[:, :, None].astype(int), 2)[:, :, 0]


@pytest.mark.parametrize('optimistic', [True, False])
def test_wqmix_weighs_joint_actions_by_what_its_critic_thinks_of_them(optimistic: bool) -> None:
    spec = spec_of_team(**CROWD)
    learn = dict(optimistic=optimistic, alpha=0.25)
    policy: Any = create_policy(dict(type='wqmix', discount_factor=0.9, learn=learn), spec)
    with torch.no_grad():
        for parameter in policy.update.targets.network.parameters():
            parameter.add_(0.02)
    data = rows_of(spec, 40)
    found = policy.update.loss(policy.columns(data))

    def values(network: Any, part: str) -> Any:
        return numbers(network(policy.tensor(data[part]))).reshape(40, 3, 4)

    online, target = policy.model, policy.update.targets.network.central
    best_next = values(online, 'next_obs').argmax(2)
    reached = mixed(policy, target, of_each(values(target, 'next_obs'), best_next), data['next_obs'])
    wanted = data['reward'] + 0.9 * ~data['terminated'] * reached
    own, central = values(online, 'obs'), values(online.central, 'obs')
    joint = mixed(policy, online, of_each(own, data['action']), data['obs'])
    judged = mixed(policy, online.central, of_each(central, data['action']), data['obs'])
    best = own.argmax(2)
    judged_best = mixed(policy, online.central, of_each(central, best), data['obs'])
    is_best = ((best == data['action']) | (data['obs']['present'] == 0)).all(1)
    counts = wanted > joint if optimistic else is_best | (wanted > judged_best)
    assert 0 < counts.sum() < 40
    weight = np.where(counts, 1, 0.25)
    loss = (weight * (wanted - joint) ** 2 + (wanted - judged) ** 2).mean()
    np.testing.assert_allclose(float(found.value.detach()), loss, rtol=1e-4)


@pytest.mark.parametrize('double', [True, False])
def test_qtran_fits_sums_to_joint_values_at_the_best_joint_action_and_bounds_them_elsewhere(
    double: bool,
) -> None:
    spec = spec_of_team(**CROWD)
    learn = dict(opt_weight=0.5, nopt_weight=0.25)
    policy: Any = create_policy(dict(type='qtran', discount_factor=0.9, double=double, learn=learn), spec)
    with torch.no_grad():
        for parameter in policy.update.targets.network.parameters():
            parameter.add_(0.02)
    data = rows_of(spec, 12)
    found = policy.update.loss(policy.columns(data))

    online, target = policy.model, policy.update.targets.network
    obs, next_obs = policy.tensor(data['obs']), policy.tensor(data['next_obs'])

    def joint(network: Any, seen: Any, action: Any) -> Any:
        return numbers(network.joint(seen, torch.as_tensor(action)))

    judge = online if double else target
    best_next = numbers(judge(next_obs)).reshape(12, 3, 4).argmax(2)
    wanted = data['reward'] + 0.9 * ~data['terminated'] * joint(target, next_obs, best_next)
    value = numbers(online(obs)).reshape(12, 3, 4)
    best, taken = value.argmax(2), data['action']
    offset = numbers(online.state_value(obs))
    of_best, of_taken = (
        (of_each(value, choice) * data['obs']['present']).sum(1) - joint(online, obs, choice) + offset
        for choice in (best, taken)
    )
    assert (of_taken < 0).any() and (of_taken > 0).any()
    error = wanted - joint(online, obs, taken)
    loss = error**2 + 0.5 * of_best**2 + 0.25 * np.minimum(of_taken, 0) ** 2
    np.testing.assert_allclose(float(found.value.detach()), loss.mean(), rtol=1e-4)
    np.testing.assert_allclose(numbers(found.error), error, atol=1e-5)


def test_only_joint_values_learn_from_rewards_and_only_sums_are_fitted_to_them() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='qtran'), spec)
    rows = policy.columns(rows_of(spec, 12))
    parts = policy.update.loss(rows).parts
    for name, learning, fixed in (
        ('td_loss', policy.model.joint, policy.model.agents),
        ('opt_loss', policy.model.agents, policy.model.joint),
        ('nopt_loss', policy.model.agents, policy.model.joint),
    ):
        policy.model.zero_grad()
        parts[name].backward(retain_graph=True)
        assert any(p.grad is not None for p in learning.parameters()), name
        assert all(p.grad is None for p in fixed.parameters()), name


def test_a_coma_agent_is_credited_with_what_its_choice_added_while_the_others_did_what_they_did() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='coma', learn=dict(entropy_weight=0.5)), spec)
    with torch.no_grad():
        for head in policy.model.actor.heads:
            head.weight.mul_(100)
    data = rows_of(spec)
    present, action = data['obs']['present'], data['action'].astype(int)
    obs = policy.tensor(data['obs'])

    def value_of(joint: Any, agent: int) -> Any:
        values = numbers(policy.model.values(obs, torch.as_tensor(joint))).reshape(5, 3, 4)
        return of_each(values, joint)[:, agent]

    probs = np.exp(numbers(policy.model.logit(obs)).reshape(5, 3, 4))
    probs /= probs.sum(2, keepdims=True)
    advantage = np.zeros((5, 3))
    for agent in range(3):
        baseline = 0
        for choice in range(4):
            other = action.copy()
            other[:, agent] = choice
            baseline = baseline + probs[:, agent, choice] * value_of(other, agent)
        advantage[:, agent] = value_of(action, agent) - baseline
    log_prob = np.log(of_each(probs, action))
    entropy = -(probs * np.log(probs)).sum(2)
    wanted = -((log_prob * advantage + 0.5 * entropy) * present).sum() / present.sum()
    found = policy.update.actor_loss(dict(obs=obs, action=policy.tensor(data['action'])))
    np.testing.assert_allclose(float(found.value.detach()), wanted, rtol=1e-3)


def test_the_counterfactual_critic_does_not_see_the_choice_that_it_values() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='coma'), spec)
    obs = policy.tensor(random_obs(spec, 4))
    obs['present'][:] = 1
    action = torch.zeros(4, 3, dtype=torch.int64)
    other = action.clone()
    other[:, 1] = 2
    one, two = (numbers(policy.model.values(obs, each)).reshape(4, 3, 4) for each in (action, other))
    np.testing.assert_array_equal(one[:, 1], two[:, 1])
    assert (one[:, [0, 2]] != two[:, [0, 2]]).any(2).all()


@pytest.mark.parametrize('core', [None, 'gru'])
def test_returns_of_coma_mix_the_values_of_the_joint_actions_that_follow(core: str | None) -> None:
    spec = spec_of_team(**CROWD)
    collect = dict(discount_factor=0.9, td_lambda=0.7)
    policy: Any = create_policy(dict(type='coma', collect=collect, model=dict(core=core)), spec)
    rng = np.random.default_rng(3)
    obs = np.stack([random_obs(spec, 2, t) for t in range(5)])
    block = Batch(
        obs=obs[:-1],
        next_obs=obs[1:],
        action=rng.integers(4, size=(4, 2, 3)),
        truncated=np.zeros((4, 2), bool),
        reward=rng.normal(size=(4, 2)).astype(np.float32),
        terminated=np.array([[0, 0], [0, 1], [0, 0], [0, 0]], bool),
        logit=np.zeros((4, 2, 12), np.float32),
        collect_iter=np.zeros((4, 2), np.int32),
        state=rng.normal(size=(4, 2, 3, 64)).astype(np.float32),
    )
    drawn: list[Any] = []
    sample = policy.distribution.sample
    policy.distribution.sample = lambda logit, rng: drawn.append(sample(logit, rng)) or drawn[-1]
    found = policy.get_train_sample(block)
    drawn = drawn[0]  # behind the end of the first episode, and behind the last rows

    def value(seen: Any, action: Any) -> Any:
        values = numbers(policy.model.values(policy.tensor(seen), torch.as_tensor(action))).reshape(-1, 3, 4)
        own, present = of_each(values, action), seen['present']
        mean = (own * present).sum(1, keepdims=True) / np.maximum(present.sum(1, keepdims=True), 1)
        return np.where(present == 1, own, mean)

    wanted = np.zeros((4, 2, 3))
    after = value(obs[4], drawn[1:])
    for env in range(2):
        following = after[env]
        for t in reversed(range(4)):
            bootstrap = after[env] if t == 3 else value(obs[t + 1], block['action'][t + 1])[env]
            mixed_return = following if t == 3 else 0.7 * wanted[t + 1, env] + 0.3 * bootstrap
            goes_on = not block['terminated'][t, env]
            wanted[t, env] = block['reward'][t, env] + 0.9 * goes_on * mixed_return
    order = wanted.swapaxes(0, 1) if core else wanted
    np.testing.assert_allclose(found['return_'], order.reshape(8, 3), atol=1e-5)


def test_the_value_of_a_qmix_team_never_falls_if_that_of_an_agent_rises() -> None:
    spec = spec_of_team(game=GAME)
    policy: Any = create_policy(dict(type='qmix'), spec)
    obs = policy.tensor(random_obs(spec, 50))
    obs['present'][:] = 1
    chosen = torch.randn(50, 2, requires_grad=True)
    policy.model.mixed(chosen, obs).sum().backward()
    assert (chosen.grad >= 0).all()


def test_each_agent_of_a_mappo_team_is_clipped_by_its_own_ratio_and_absent_ones_count_for_nothing() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='mappo', learn=dict(entropy_weight=0.0)), spec)
    rng = np.random.default_rng(0)
    data = rows_of(spec)
    obs = policy.tensor(data['obs'])
    old, advantage = rng.normal(size=(5, 12)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    rows = dict(
        obs=obs,
        action=policy.tensor(data['action']),
        logit=torch.from_numpy(old),
        advantage=torch.from_numpy(advantage),
        log_prob=torch.zeros(5),
        return_=torch.zeros(5),
    )
    loss, entropy, _ = policy.update.surrogate(policy.model.logit(obs), rows)

    def log_probs(logit: Any) -> Any:
        logit = logit.reshape(5, 3, 4)
        return logit - np.log(np.exp(logit).sum(2, keepdims=True))

    new = log_probs(numbers(policy.model.logit(obs)))
    index = data['action'][:, :, None].astype(int)
    ratio = np.exp(np.take_along_axis(new - log_probs(old), index, 2))[:, :, 0]
    scaled = ((advantage - advantage.mean()) / (advantage.std() + 1e-8))[:, None]
    gain = np.minimum(ratio * scaled, ratio.clip(0.8, 1.2) * scaled)
    present = data['obs']['present']
    assert 0 < present.sum() < present.size
    np.testing.assert_allclose(float(loss.detach()), -(gain * present).sum() / present.sum(), rtol=1e-4)
    uncertain = -(np.exp(new) * new).sum(2)
    np.testing.assert_allclose(
        float(entropy.detach()), (uncertain * present).sum() / present.sum(), rtol=1e-4
    )


def test_with_rewards_of_their_own_agents_have_advantages_and_values_of_their_own() -> None:
    spec = spec_of_team(**CROWD)
    learn = dict(entropy_weight=0.0, value_norm=False)
    policy: Any = create_policy(dict(type='mappo', agent_rewards=True, learn=learn), spec)
    rng = np.random.default_rng(0)
    data = rows_of(spec)
    obs = policy.tensor(data['obs'])
    value = policy.model.value(obs)
    assert value.shape == (5, 3)
    advantage, return_ = rng.normal(size=(2, 5, 3)).astype(np.float32)
    logit = policy.model.logit(obs)
    rows = dict(
        obs=obs,
        action=policy.tensor(data['action']),
        logit=logit.detach(),
        advantage=torch.from_numpy(advantage),
        return_=torch.from_numpy(return_),
    )
    loss, _, _ = policy.update.surrogate(logit, rows)
    present = data['obs']['present']
    scaled = np.zeros((5, 3))
    for agent in range(3):
        own = advantage[present[:, agent] == 1, agent]
        scaled[present[:, agent] == 1, agent] = (own - own.mean()) / own.std() if len(own) > 1 else own
    np.testing.assert_allclose(float(loss.detach()), -(scaled * present).sum() / present.sum(), atol=1e-6)
    squares = np.square(numbers(value) - return_) * present
    value_loss = policy.update.value_loss(value, rows)
    np.testing.assert_allclose(float(value_loss.detach()), squares.sum() / present.sum(), rtol=1e-5)
    absent = value.detach().requires_grad_()
    policy.update.value_loss(absent, rows).backward()
    assert not absent.grad[torch.from_numpy(present == 0)].any()


def test_advantages_of_agents_are_normalised_over_the_rows_in_which_they_are_present() -> None:
    spec = spec_of_team(**CROWD)
    data = rows_of(spec, 20)
    present = data['obs']['present'].astype(bool)
    advantage, return_ = np.random.default_rng(0).normal(size=(2, 20, 3)).astype(np.float32)
    for norm in ('batch', 'round'):
        policy: Any = create_policy(
            dict(type='mappo', agent_rewards=True, learn=dict(advantage_norm=norm)), spec
        )
        given = data.replace(advantage=advantage, return_=return_, logit=np.zeros((20, 12), np.float32))
        columns = policy.columns(given)
        assert policy._returns.count == present.sum(), 'values learn these returns alone'
        np.testing.assert_allclose(policy._returns.mean, return_[present].mean(), rtol=1e-4)
        found = columns['advantage']
        found = numbers(policy.update.normalised(found, columns) if norm == 'batch' else found)
        for agent in range(3):
            own = present[:, agent]
            wanted = (advantage[own, agent] - advantage[own, agent].mean()) / advantage[own, agent].std()
            np.testing.assert_allclose(found[own, agent], wanted, atol=1e-5)


@pytest.mark.parametrize('name', ['mappo', 'happo'])
def test_an_agent_that_leaves_has_no_later_value_of_its_own(name: str) -> None:
    env = BaseEnvManager([lambda: Team(**CROWD)] * 2)
    own = dict(type=name, agent_rewards=True, collect=dict(gae_lambda=0.7))
    learner: Any = create_policy(own, env.spec)
    samples = SampleSerialCollector({}, env, learner.collect_mode).collect(12)
    value = numbers(learner.model.value(learner.tensor(samples['obs']))).reshape(6, 2, 3)
    advantage = samples['advantage'].reshape(6, 2, 3)
    # it acts in three steps, and earns the number of each
    for row in range(2):
        following = 0.0
        for step in (2, 1, 0):
            after = value[step + 1, row, 2] if step < 2 else 0.0
            following = step + 1 + 0.99 * after - value[step, row, 2] + 0.99 * 0.7 * following
            assert advantage[step, row, 2] == pytest.approx(following, rel=1e-4)


def test_changes_of_a_mappo_team_are_means_over_agents_that_are_present() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='mappo'), spec)
    rng = np.random.default_rng(0)
    data = rows_of(spec)
    obs = policy.tensor(data['obs'])
    old = rng.normal(size=(5, 12)).astype(np.float32)
    rows = dict(obs=obs, action=policy.tensor(data['action']), logit=torch.from_numpy(old))
    rows |= dict(advantage=torch.ones(5))
    new = policy.model.logit(obs)
    _, _, metrics = policy.update.surrogate(new, rows)
    one, two = (policy.update.of_agents(each, rows['action'])[0] for each in (new, rows['logit']))
    log_ratio = numbers(one - two)[data['obs']['present'] == 1]
    ratio = np.exp(log_ratio)
    assert float(metrics['approx_kl']) == pytest.approx((ratio - 1 - log_ratio).mean(), rel=1e-4)
    assert float(metrics['clip_fraction']) == pytest.approx((abs(ratio - 1) > 0.2).mean())


@pytest.mark.parametrize(
    ('policy', 'core'),
    [('mappo', None), ('mappo', 'gru'), ('happo', None), ('happo', 'gru'), ('coma', None), ('coma', 'gru')],
)
def test_rewards_of_agents_are_those_that_the_game_pays(policy: str, core: str | None) -> None:
    env = BaseEnvManager([lambda: Team(**CROWD)] * 2)
    decay = 'td_lambda' if policy == 'coma' else 'gae_lambda'
    own = dict(type=policy, agent_rewards=True, model=dict(core=core), collect={decay: 1.0})
    learner: Any = create_policy(own, env.spec)
    cfg = dict(mark_episodes=core is not None)
    samples = SampleSerialCollector(cfg, env, learner.collect_mode).collect(12)
    # each who acts earns the number of the step
    steps = [range(6), range(2, 6), range(3)]
    earned = [sum(0.99**t * (t + 1) for t in own) for own in steps]
    first = np.flatnonzero(~samples['obs']['last_action'].any(1))
    assert len(first) == 2
    np.testing.assert_allclose(samples['return_'][first], [earned, earned], rtol=1e-5)
    if policy == 'coma':
        return
    value = numbers(learner.model.value(learner.tensor(samples['obs'])))
    np.testing.assert_allclose(samples['advantage'], samples['return_'] - value, rtol=1e-4, atol=1e-4)


ALONE: dict[str, dict[str, Any]] = {
    'mappo': dict(learn=dict(batch_size=64, learning_rate=1e-2), collect=dict(n_sample=256)),
    'coma': dict(learn=dict(batch_size=64, learning_rate=1e-2), collect=dict(n_sample=256)),
    'maddpg_discrete': dict(
        learn=dict(batch_size=64, learning_rate_actor=1e-2, learning_rate_critic=1e-2, update_per_collect=4),
        collect=dict(n_sample=16),
        policy_=dict(random_collect_size=500),
    ),
}
ALONE['masac_discrete'] = copy.deepcopy(ALONE['maddpg_discrete'])
ALONE['masac_discrete']['learn']['alpha'] = 0.02
"""Sections of policies whose agents may learn from rewards of their own."""


@pytest.mark.usefixtures('cwd')
@pytest.mark.slow
@pytest.mark.parametrize('name', ['mappo', 'coma', 'maddpg_discrete', 'masac_discrete'])
@pytest.mark.parametrize(('own', 'total'), [(False, 6.0), (True, 2.0)])
def test_agents_with_rewards_of_their_own_defect_where_a_team_cooperates(
    name: str, own: bool, total: float
) -> None:
    game = 'agent_games:dilemma'
    sections = copy.deepcopy(ALONE[name])
    sections['policy_'] = sections.get('policy_', {}) | dict(agent_rewards=own)
    model = dict(encoder_hidden_size_list=[16])
    policy = trained_in_two_steps(name, 0, game, model=model, max_env_step=5000, **sections)
    assert best_return(policy, game) == total


def entropy_cost(update: Any, obs: Any, noise: Any) -> Any:
    """Returns the action of a team and what each agent's part in its entropy costs, [B, A], by the formulas of the papers."""
    alpha = float(update.entropy.value)
    present = numbers(obs['present'])
    if hasattr(update, 'choices'):
        logit = update.logit(obs)
        action = update.choices.drawn(logit, noise, 1.0)
        each = numbers(logit).reshape(len(present), 3, -1)
        each = np.where(each < -1e6, -np.inf, each)
        prob = np.exp(each - each.max(2, keepdims=True))
        prob /= prob.sum(2, keepdims=True)
        log_prob = np.where(prob > 0, prob * np.log(np.maximum(prob, 1e-300)), 0).sum(2)
        return action, alpha * log_prob * present
    mean, log_std = update.model.actor(obs)
    raw = mean + log_std.exp() * noise
    density = -0.5 * numbers(noise) ** 2 - numbers(log_std) - 0.5 * np.log(2 * np.pi)
    log_prob = density - np.log(1 - np.tanh(numbers(raw)) ** 2)
    return raw.tanh(), alpha * log_prob.reshape(len(present), 3, -1).sum(2) * present


@pytest.mark.parametrize('twin', [False, True])
@pytest.mark.parametrize('policy', ['maddpg', 'maddpg_discrete', 'masac', 'masac_discrete'])
def test_each_agent_with_rewards_of_its_own_has_a_critic_that_it_alone_follows(
    policy: str, twin: bool
) -> None:
    spec = spec_of_team(**(CROWD if policy in BY_CHOICES else BOXES))
    cfg = dict(type=policy, agent_rewards=True, groups='separate', discount_factor=0.9)
    learner: Any = create_policy(cfg | dict(model=dict(twin_critic=twin)), spec)
    count = 1 + twin
    action: Any = spec.action_space
    data = Batch(
        obs=random_obs(spec, 5, 1),
        next_obs=random_obs(spec, 5, 2),
        action=np.stack([action.sample() for _ in range(5)]).reshape(5, -1),
        reward=np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32),
        terminated=np.arange(5) % 3 == 0,
    )
    if policy in BY_CHOICES:
        data = data.replace(action=(data['action'] - action.start).astype(np.uint8))
    rows = learner.columns(data)
    update, model = learner.update, learner.model
    # critics
    if 'masac' in policy:
        next_action, cost = entropy_cost(update, rows['next_obs'], rows['next_noise'])
    else:
        next_action, cost = update.next_action(rows), np.zeros((5, 3))
    reached = numbers(update.targets.network['critic'](rows['next_obs'], next_action))
    value = numbers(model.critic(rows['obs'], rows['action']))
    loss = 0.0
    for agent in range(3):
        own = slice(agent * count, (agent + 1) * count)
        follows = ~data['terminated'] * data['next_obs']['present'][:, agent]
        wanted = data['reward'][:, agent] + 0.9 * follows * (reached[own].min(0) - cost[:, agent])
        loss += (np.square(wanted - value[own]) * data['obs']['present'][:, agent]).mean(1).sum()
    np.testing.assert_allclose(float(update.critic_loss(rows).value.detach()), loss, rtol=1e-4)
    # actors
    if 'masac' in policy:
        taken, cost = entropy_cost(update, rows['obs'], rows['noise'])
        reached = numbers(model.critic(rows['obs'], taken)).reshape(3, count, 5).min(1)
        found = update.actor_loss(rows)
        assert float(found.value.detach()) == pytest.approx((cost.sum(1) - reached.sum(0)).mean(), rel=1e-3)
        assert float(found.metrics['entropy']) == pytest.approx(-cost.sum(1).mean(), rel=1e-3)
        update.entropy.value.zero_()
    with torch.no_grad():
        for critic in model.critic.nets[count : 2 * count]:
            for parameter in critic.parameters():
                parameter.zero_()
    update.actor_loss(rows).value.backward()
    moves = [
        any(bool(p.grad.any()) for p in [*net.parameters(), *head.parameters()])
        for net, head in zip(model.actor.agents.nets, model.actor.agents.heads, strict=True)
    ]
    assert moves == [True, False, True], 'the critics of the second agent have no slope'


@pytest.mark.parametrize(
    'options',
    [
        dict(type='mappo', normalize_reward=True),
        dict(type='mappo', collect=dict(record='steps.npz')),
        dict(type='maddpg_discrete', nstep=3),
    ],
)
def test_rewards_of_agents_beside_what_needs_one_reward_are_an_error(options: dict[str, Any]) -> None:
    with raises(ConfigError):
        create_policy(dict(agent_rewards=True, **options), spec_of_team(**CROWD))


def test_a_mixer_needs_the_reward_of_the_team() -> None:
    with raises(ConfigError):
        create_policy(dict(type='qmix', agent_rewards=True), spec_of_team(**CROWD))


def test_an_env_that_does_not_say_who_earned_its_reward_is_an_error() -> None:
    with raises(IncompatibleError):
        create_policy(dict(type='mappo', agent_rewards=True), env='CartPole-v1')


def test_a_happo_agent_learns_by_how_much_those_before_it_changed() -> None:
    spec = spec_of_team(**CROWD)
    learn = dict(entropy_weight=0.0, advantage_norm=None, epoch_per_collect=1, batch_size=5)
    policy: Any = create_policy(dict(type='happo', learn=learn | dict(learning_rate=0.05)), spec)
    data = rows_of(spec).replace(logit=np.zeros((5, 12), np.float32))
    data = data.replace(obs=data['obs'].copy(), advantage=np.float32([1, -1, 2, -2, 1]))
    data['obs']['present'] = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    data = data.replace(return_=data['advantage'], log_prob=np.zeros(5, np.float32))
    before = policy.tensor(policy._logit(data['obs']))
    data = data.replace(logit=before.numpy())

    seen: list[Any] = []
    for update in policy.forward_learn(data):
        rows = update.args[0]
        seen.append((policy.update.agent, numbers(rows['factor'])))
        update()
    order = [agent for agent, _ in seen]
    assert sorted(order) == [0, 1, 2]
    action = policy.tensor(data['action'])
    with torch.no_grad():
        new, old = (
            policy.update.of_agents(logit, action)[0]
            for logit in (policy.model.logit(policy.tensor(data['obs'])), before)
        )
    change = numbers(((new - old) * torch.from_numpy(data['obs']['present'].astype(np.float32))).exp())
    wanted = [np.ones(5), change[:, order[0]], change[:, order[0]] * change[:, order[1]]]
    for (_, factor), expected in zip(seen, wanted, strict=True):
        np.testing.assert_allclose(np.sort(factor), np.sort(expected), rtol=1e-4)


def test_an_agent_of_a_happo_team_stops_at_its_limit_and_the_others_go_on() -> None:
    spec = spec_of_team(**CROWD)
    learn = dict(batch_size=None, epoch_per_collect=5, target_kl=1e-12, learning_rate=0.1, unroll_len=2)
    for core in (None, 'gru'):
        policy: Any = create_policy(dict(type='happo', learn=learn, model=dict(core=core)), spec)
        env = BaseEnvManager([lambda: Team(**CROWD)] * 2)
        cfg = dict(mark_episodes=core is not None)
        data = SampleSerialCollector(cfg, env, policy.collect_mode).collect(12)
        turns = []
        for update in policy.forward_learn(data):
            turns.append(policy.update.agent)
            update()
        assert [turns.count(agent) for agent in range(3)] == [2, 2, 2], 'the first update changes nothing yet'


def test_happo_refuses_shared_networks() -> None:
    with raises(ConfigError):
        create_policy(dict(type='happo', groups='shared'), spec_of_team(**CROWD))


def test_with_memories_happo_knows_how_agents_changed_along_their_episodes() -> None:
    env = BaseEnvManager([lambda: Team(**CROWD)] * 2)
    learn = dict(batch_size=12, epoch_per_collect=1, learning_rate=0.05)
    own = dict(type='happo', learn=learn, model=dict(core='gru', core_hidden_size=8))
    policy: Any = create_policy(own, env.spec)
    cfg = dict(mark_episodes=True)
    data = SampleSerialCollector(cfg, env, policy.collect_mode).collect(12)
    factors: dict[int, Any] = {}
    for update in policy.forward_learn(data):
        rows = update.args[0]
        factors[policy.update.agent] = numbers(rows['factor'])
        update()
    first, second, _ = factors
    assert (factors[first] == 1).all() and (factors[second] != 1).any()
    # what the first agent does now, step by step, beside what it did
    state = torch.zeros(2, *policy.model.state_shape)
    changes = []
    for step in range(6):
        rows = data[np.arange(12).reshape(2, 6)[:, step]]
        obs, action = policy.tensor(rows['obs']), policy.tensor(rows['action'])
        with torch.no_grad():
            logit, state = policy.model.step(obs, state)
            now, before = (
                policy.update.of_agents(each, action)[0][:, first]
                for each in (policy.masked(logit, obs), policy.tensor(rows['logit']))
            )
        changes.append(np.exp(numbers(now - before) * rows['obs']['present'][:, first]))
    np.testing.assert_allclose(np.sort(factors[second]), np.sort(np.concatenate(changes)), rtol=1e-3)


def trained_in_two_steps(policy: str, seed: int, game: str = GAME, **sections: Any) -> Any:
    """Trains in the two-step game, or another one, and returns the policy."""
    main, create = config_pair(
        env_id='rlframe.envs.team_env:Team',
        policy=policy,
        env=dict(kwargs=dict(game=game), collector_env_num=8, stop_value='never'),
        evaluator=dict(eval_freq=10**6),
        **sections,
    )
    with SerialPipeline(config.compile_config(main, create, seed=seed)) as pipeline:
        pipeline.run()
    return pipeline.policy


def row_of(env: Any, obs: Any) -> Any:
    return np.asarray(pack(env.observation_space, obs))[None]


def best_return(policy: Any, game: str = GAME) -> float:
    """Returns the return of a team that takes the best actions."""
    env = Team(game)
    obs, _ = env.reset(seed=0)
    total, is_over = 0.0, False
    policy.reset_eval()
    while not is_over:
        action = policy.eval_mode.forward(row_of(env, obs), np.arange(1))['action'][0]
        obs, reward, is_over, _, _ = env.step(action)
        total += reward
    return total


def joint_values(policy: Any, game: int) -> Any:
    """Returns what a team thinks of its joint actions in one of the two games of the second step, [2, 2]."""
    env = Team(GAME)
    env.reset(seed=0)
    obs = policy.tensor(row_of(env, env.step(np.array([game, 0]))[0]))
    joint = policy.update.joint
    with torch.no_grad():
        value = policy.model(obs)
        each = [joint(policy.model, value, torch.tensor([[i, j]]), obs) for i in (0, 1) for j in (0, 1)]
    return torch.cat(each).reshape(2, 2).numpy()


BY_VALUES: dict[str, Any] = dict(
    model=dict(encoder_hidden_size_list=[32]),
    learn=dict(batch_size=64, learning_rate=2e-3, update_per_collect=4, target_update_freq=50),
    collect=dict(n_sample=16),
    other=dict(eps=1.0, replay_buffer=dict(replay_buffer_size=500)),
    policy_=dict(discount_factor=0.99),
    max_env_step=8000,
)


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('seed', range(3))
def test_qmix_finds_8_in_the_two_step_game_and_knows_its_payoffs(seed: int) -> None:
    policy = trained_in_two_steps('qmix', seed, **BY_VALUES)
    assert best_return(policy) == 8.0
    np.testing.assert_allclose(joint_values(policy, 1), PAYOFF[1], atol=0.3)


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('seed', range(3))
def test_vdn_finds_7_as_sums_fit_the_other_game_badly(seed: int) -> None:
    policy = trained_in_two_steps('vdn', seed, **BY_VALUES)
    assert best_return(policy) == 7.0
    best_sum = [[-1.5, 2.5], [2.5, 6.5]]  # the least squares, as in the paper: -1.5 + 4 for each choice of 1
    np.testing.assert_allclose(joint_values(policy, 1), best_sum, atol=0.4)


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize(('game', 'best'), [(GAME, 8.0), ('agent_games:matrix', 8.0)])
def test_qtran_finds_the_best_return_of_games_whose_values_are_no_sums(
    game: str, best: float, seed: int
) -> None:
    policy = trained_in_two_steps('qtran', seed, game, **BY_VALUES)
    assert best_return(policy, game) == best
    if game == GAME:
        return
    obs = policy.tensor(row_of(Team(game), Team(game).reset(seed=0)[0]))
    with torch.no_grad():
        joint = [float(policy.model.joint(obs, torch.tensor([[i, j]]))) for i in range(3) for j in range(3)]
    np.testing.assert_allclose(joint, MATRIX.flatten(), atol=1.0)


@pytest.mark.usefixtures('cwd')
@pytest.mark.slow
@pytest.mark.parametrize('name', ['mappo', 'coma'])
def test_policy_gradients_find_a_best_return_of_the_two_step_game(name: str) -> None:
    policy = trained_in_two_steps(
        name,
        0,
        model=dict(encoder_hidden_size_list=[16]),
        learn=dict(batch_size=64, learning_rate=1e-2, entropy_weight=0.05),
        collect=dict(n_sample=256),
        max_env_step=6000,
    )
    assert best_return(policy) in (7.0, 8.0)


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
def test_a_team_whose_agents_act_in_turn_learns_from_the_reward_of_each_turn() -> None:
    options = copy.deepcopy(BY_VALUES) | dict(max_env_step=4000)
    policy = trained_in_two_steps('vdn', 0, 'agent_games:echo', **options)
    assert best_return(policy, 'agent_games:echo') == 6.0


MAPPO_OPTIONS = dict(core='gru', core_hidden_size=8)


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(
    ('policy', 'groups'),
    [
        *((policy, 'shared') for policy in POLICIES),
        *((policy, [[0, 2], [1]]) for policy in ('qmix', 'mappo')),
        *(
            pytest.param(policy, [[0, 2], [1]], marks=pytest.mark.slow)
            for policy in ('vdn', 'wqmix', 'qtran', 'coma')
        ),
    ],
)
def test_teams_with_memories_and_groups_train_and_are_exported_without_what_only_learning_reads(
    policy: str, groups: Any
) -> None:
    env = dict(env_id='rlframe.envs.team_env:Team', kwargs=CROWD)
    model = dict(encoder_hidden_size_list=[8], last_action=True, **MAPPO_OPTIONS)
    checkpoint = trained(policy, env, dict(groups=groups, model=model))
    loaded = rlframe.load(export_policy(checkpoint)['artifact'])
    assert list(loaded.observation_space) == ['agents', 'last_action', 'action_mask']
    judge: Any = as_eval_builds_it(checkpoint)
    judge.reset_eval()
    obs = random_obs(judge.spec, 6)
    for _ in range(3):
        wanted = judge.eval_mode.forward(obs, np.arange(6))['action']
        given = {name: obs[name] for name in loaded.observation_space}
        np.testing.assert_array_equal(loaded.act(given), wanted)


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(('policy', 'core'), [('mappo', None), ('vdn', 'gru')])
def test_an_agent_of_an_exported_team_acts_by_what_it_alone_sees(policy: str, core: str | None) -> None:
    env = dict(env_id='rlframe.envs.team_env:Team', kwargs=CROWD)
    model = dict(encoder_hidden_size_list=[8], last_action=True, core=core)
    checkpoint = trained(policy, env, dict(groups=[[0, 2], [1]], model=model))
    loaded = rlframe.load(export_policy(checkpoint)['artifact'])
    space: Any = loaded.observation_space
    loaded.act(space.sample() | {'action_mask': np.ones(12, np.int8)})
    agents = [loaded.agent(i) for i in range(3)]  # each begins an episode
    loaded.reset()
    last = np.zeros((2, 3), int)
    for step in range(3):
        obs = random_obs(spec_of_team(**CROWD), 2, step)
        masks = np.ones((2, 3, 4), np.int8)
        masks[:, :, step] = 0
        given = {'agents': obs['agents'], 'last_action': last, 'action_mask': masks.reshape(2, 12)}
        together = loaded.act(given)
        alone = [agent.act(obs['agents'][:, i], masks[:, i]) for i, agent in enumerate(agents)]
        np.testing.assert_array_equal(np.stack(alone, 1), together)
        last = together - space['last_action'].start + 2
    agents[0].reset()
    assert isinstance(agents[0].act(obs['agents'][0, 0]), int)
    with raises(ObservationError):
        loaded.agent(3)


def test_agents_of_a_group_share_a_network_and_others_have_their_own() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='vdn', groups=[[2, 0], [1]], model=dict(agent_id=False)), spec)
    obs = random_obs(spec, 4)
    obs['agents'][:] = obs['agents'][:, :1]
    value = numbers(policy.model(policy.tensor(obs))).reshape(4, 3, 4)
    np.testing.assert_allclose(value[:, 0], value[:, 2], rtol=1e-6)
    assert not np.allclose(value[:, 0], value[:, 1])


def test_agents_that_share_a_network_differ_by_their_number() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='mappo'), spec)
    with torch.no_grad():
        for head in policy.model.actor.heads:
            head.weight.mul_(100)
    obs = random_obs(spec, 4)
    obs['agents'][:] = obs['agents'][:, :1]
    logit = policy._logit(obs).reshape(4, 3, 4)
    assert not np.allclose(logit[:, 0], logit[:, 1], atol=1e-3)


@pytest.mark.parametrize('groups', ['alone', [[0, 1]], [[0, 1], [1, 2]], [[0], [True]]])
def test_groups_that_do_not_hold_each_agent_once_are_an_error(groups: Any) -> None:
    with raises(ConfigError):
        create_policy(dict(type='qmix', groups=groups), spec_of_team(**CROWD))


def test_a_team_whose_observations_have_no_state_is_an_error() -> None:
    spec = spec_of_team(game=GAME)
    parts = {name: part for name, part in spec.observation_space.spaces.items() if name != 'state'}
    space = spaces.Dict(parts, sort_keys=False)
    with raises(IncompatibleError):
        create_policy(dict(type='qmix'), EnvSpec(space, spec.action_space, name='TwoStep'))


@pytest.mark.parametrize('policy', ['mappo', 'masac_discrete'])
def test_critics_of_a_team_read_a_part_that_there_is(policy: str) -> None:
    for part in ('stat', 'action_mask'):
        with raises(IncompatibleError):
            create_policy(dict(type=policy, model=dict(critic_obs=part)), spec_of_team(game=GAME))
    for name in ('agents', None):
        create_policy(dict(type=policy, model=dict(critic_obs=name)), spec_of_team(game=GAME))


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('policy', ['mappo', 'maddpg_discrete'])
def test_agents_that_learned_from_rewards_of_their_own_are_exported(policy: str) -> None:
    env = dict(env_id='rlframe.envs.team_env:Team', kwargs=CROWD)
    checkpoint = trained(policy, env, dict(agent_rewards=True, model=dict(encoder_hidden_size_list=[8])))
    loaded = rlframe.load(export_policy(checkpoint)['artifact'])
    obs = random_obs(spec_of_team(**CROWD), 2)
    assert loaded.act({name: obs[name] for name in loaded.observation_space}).shape == (2, 3)


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('policy', ['qmix', 'mappo', 'coma'])
def test_a_team_with_memories_continues_exactly_from_a_checkpoint(policy: str, cwd: Any) -> None:
    sections: dict[str, Any] = dict(
        env_id='rlframe.envs.team_env:Team',
        policy=policy,
        env=dict(kwargs=CROWD),
        model=dict(encoder_hidden_size_list=[8], core='gru', core_hidden_size=8),
        collect=dict(n_sample=64),
    )
    if policy == 'qmix':
        sections |= dict(buffer=dict(type='sequence', unroll_len=4), collector=dict(mark_episodes=True))

    def begun(**given: Any) -> SerialPipeline:
        return SerialPipeline(config.compile_config(*config_pair(**copy.deepcopy(sections)), seed=0), **given)

    with begun() as whole:
        for _ in range(2):
            whole.step()
        saved = whole.save_checkpoint(cwd / 'saved')
        for _ in range(2):
            whole.step()
    with begun(resume=saved) as resumed:
        for _ in range(2):
            resumed.step()
    expected, got = (run.policy.learn_mode.state_dict()['model'] for run in (whole, resumed))
    assert all(got[name].equal(weight) for name, weight in expected.items())


BOXES = dict(game='agent_games:crowd', act='box', obs='box')
BY_CHOICES = ['maddpg_discrete', 'masac_discrete']


def test_choices_are_drawn_one_hot_with_the_gradient_of_a_softmax() -> None:
    choices = Choices(EnvSpec(spaces.Discrete(2), spaces.MultiDiscrete([2, 3])), 'cpu')
    logit = torch.tensor([[0.0, 1.0, 0.5, -0.5, 0.2]], requires_grad=True)
    noise = torch.tensor([[2.0, 0.0, 0.0, 0.0, 1.0]])
    drawn = choices.drawn(logit, noise, 0.5)
    assert drawn.tolist() == [[1, 0, 0, 0, 1]]
    drawn[0, 4].backward()
    score = np.exp(np.array([0.5, -0.5, 1.2]) / 0.5)
    soft = score / score.sum()
    expected = soft[2] * (np.array([0, 0, 1]) - soft) / 0.5
    np.testing.assert_allclose(numbers(logit.grad[0]), [0, 0, *expected], rtol=1e-5, atol=1e-8)
    assert choices.one_hot(torch.tensor([[1, 2]])).tolist() == [[0, 1, 0, 0, 1]]


def test_critics_of_choices_learn_the_value_of_the_choices_drawn_in_the_next_state() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='maddpg_discrete', discount_factor=0.9), spec)
    data = rows_of(spec)
    rows = policy.columns(data)
    assert (rows['action'].reshape(5, 3, 4).argmax(2).numpy() == data['action']).all()
    found = policy.update.critic_loss(rows)

    actor, critic = (policy.update.targets.network[name] for name in ('actor', 'critic'))
    next_obs = policy.tensor(data['next_obs'])
    drawn = (numbers(actor(next_obs)) + numbers(rows['next_noise'])).reshape(5, 3, 4).argmax(2)
    joint = torch.from_numpy(np.eye(4, dtype=np.float32)[drawn].reshape(5, 12))
    reached = numbers(critic(next_obs, joint))[0]
    value = numbers(policy.model.critic(policy.tensor(data['obs']), rows['action']))[0]
    wanted = data['reward'] + 0.9 * ~data['terminated'] * reached
    np.testing.assert_allclose(float(found.value.detach()), np.square(wanted - value).mean(), rtol=1e-4)


def test_the_entropy_of_a_team_is_the_sum_of_those_of_what_its_agents_may_choose() -> None:
    spec = spec_of_team(**CROWD)
    policy: Any = create_policy(dict(type='masac_discrete'), spec)
    assert policy.update.target_entropy() == pytest.approx(0.5 * 3 * np.log(4))
    data = rows_of(spec)
    data['obs']['action_mask'][:, 4] = 0
    rows = policy.columns(data)
    found = policy.update.actor_loss(rows)
    logit = numbers(policy.model.actor(rows['obs'])).reshape(5, 3, 4)
    logit[:, 1, 0] = -np.inf
    prob = np.exp(logit) / np.exp(logit).sum(2, keepdims=True)
    present = data['obs']['present']
    each = -np.where(prob > 0, prob * np.log(np.maximum(prob, 1e-300)), 0).sum(2)
    np.testing.assert_allclose(float(found.metrics['entropy']), (each * present).sum(1).mean(), rtol=1e-5)
    target = 0.5 * (np.log([4, 3, 4]) * present).sum(1).mean()
    assert float(found.metrics['target_entropy']) == pytest.approx(target, rel=1e-5)


@pytest.mark.parametrize('name', ['maddpg', 'masac', 'maddpg_discrete', 'masac_discrete'])
def test_critics_of_all_actions_know_no_actions_of_absent_agents(name: str) -> None:
    spec = spec_of_team(**(dict(game='agent_games:crowd') if name in BY_CHOICES else BOXES))
    policy: Any = create_policy(dict(type=name, groups='separate'), spec)
    obs = random_obs(spec, 8)
    obs['present'] = [1, 0, 1]
    rng = np.random.default_rng(0)
    action: Any = spec.action_space
    taken = np.stack([action.sample() for _ in range(8)]).reshape(8, -1)
    if name in BY_CHOICES:
        taken = (taken - action.start).astype(np.uint8)
    data = Batch(
        obs=obs,
        next_obs=obs,
        action=taken,
        reward=rng.normal(size=8).astype(np.float32),
        terminated=np.zeros(8, bool),
    )
    rows = policy.columns(data)
    other = rows['action'].clone().reshape(8, 3, -1)
    other[:, 1] = 1 - other[:, 1]
    seen = policy.model.critic(rows['obs'], rows['action'])
    assert torch.equal(seen, policy.model.critic(rows['obs'], other.reshape(8, -1)))
    loss = policy.update.actor_loss(rows)
    loss.value.backward()
    nets = policy.model.actor.agents.nets
    moves = [any(p.grad is not None and bool(p.grad.any()) for p in net.parameters()) for net in nets]
    assert moves == [True, False, True]
    if 'masac' in name:
        assert float(loss.metrics['target_entropy']) == pytest.approx(policy.update.target_entropy() * 2 / 3)


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('policy', BY_CHOICES)
def test_critics_of_choices_find_a_best_return_of_the_two_step_game(policy: str) -> None:
    learn = dict(batch_size=64, learning_rate_actor=1e-2, learning_rate_critic=1e-2, update_per_collect=4)
    if policy == 'masac_discrete':
        learn['alpha'] = 0.2
    found = trained_in_two_steps(
        policy,
        0,
        model=dict(encoder_hidden_size_list=[32]),
        learn=learn,
        collect=dict(n_sample=16),
        policy_=dict(random_collect_size=500),
        max_env_step=4000,
    )
    assert best_return(found) in (7.0, 8.0)


@pytest.mark.parametrize('name', ['maddpg', 'masac'])
def test_critics_of_continuous_teams_read_the_state_and_actors_what_each_agent_sees(name: str) -> None:
    spec = spec_of_team(**BOXES)
    model = dict(encoder_hidden_size_list=[16])
    policy: Any = create_policy(dict(type=name, model=model, groups='separate'), spec)
    obs = random_obs(spec, 4)
    other = obs.copy()
    other['state'] += 1
    other['agents'][:, 2] = -other['agents'][:, 2]

    def acted(given: Any) -> Any:
        policy.reset_eval()
        return policy.eval_mode.forward(given, np.arange(4))['action']

    one, two = acted(obs), acted(other)
    assert one.shape == (4, 3, 2) and (one != two).any((0, 2)).tolist() == [False, False, True]
    action = torch.zeros(4, 6)
    with torch.no_grad():
        seen = policy.tensor(obs)
        before = policy.model.critic(seen, action)
        assert not torch.allclose(before, policy.model.critic(seen, action + 0.5))
        seen['agents'] = seen['agents'] + 1
        assert torch.equal(before, policy.model.critic(seen, action))
        seen['state'] = seen['state'] + 1
        assert not torch.allclose(before, policy.model.critic(seen, action))


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('policy', ['maddpg', 'masac', 'happo', 'maddpg_discrete', 'masac_discrete'])
def test_further_teams_train_and_are_exported_without_what_only_learning_reads(policy: str) -> None:
    game = CROWD if policy in BY_CHOICES else BOXES
    env = dict(env_id='rlframe.envs.team_env:Team', kwargs=game)
    checkpoint = trained(policy, env, dict(model=dict(encoder_hidden_size_list=[8])))
    loaded = rlframe.load(export_policy(checkpoint)['artifact'])
    masks = ['action_mask'] if 'mask' in game else []
    assert list(loaded.observation_space) == ['agents', 'last_action', *masks]
    judge: Any = as_eval_builds_it(checkpoint)
    obs = random_obs(judge.spec, 6)
    wanted = judge.eval_mode.forward(obs, np.arange(6))['action']
    np.testing.assert_array_equal(loaded.act({name: obs[name] for name in loaded.observation_space}), wanted)
