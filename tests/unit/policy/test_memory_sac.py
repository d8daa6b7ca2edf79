"""SAC and TD3 with a core: losses, gradients and priorities equal those of a loop over sequences and their steps."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from memory import recall_run
from policy_toys import apart, random_sequences

from rlframe.data import Batch, EnvSpec, TimeStep
from rlframe.model.qac import squashed_gaussian
from rlframe.policy import create_policy
from rlframe.policy.parts.actions import ExplorationNoise
from rlframe.policy.parts.outputs import quantile_huber_loss

OBS = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
SPEC = EnvSpec(OBS, gymnasium.spaces.Discrete(4, start=2), name='Toy')
CONTINUOUS = EnvSpec(OBS, gymnasium.spaces.Box(-2, 1, (2,), np.float32), name='Toy')
BURN_IN, STEPS, GAMMA, ALPHA = 3, 5, 0.9, 0.3
LENGTHS = [(3, 5, 'terminated'), (1, 5, ''), (0, 2, 'terminated'), (2, 5, 'truncated')]
"""Real steps of the burn-in and of the rest of each sequence, and how it ends."""


def make(name: str = 'sac_discrete', core: str = 'lstm', **cfg: Any) -> Any:
    torch.manual_seed(0)
    model = dict(core=core, core_hidden_size=5, encoder_hidden_size_list=[6], activation='tanh')
    learn = dict(burn_in=BURN_IN) | (dict(alpha=ALPHA) if name != 'td3' else {}) | cfg.pop('learn', {})
    base = {'type': name, 'cuda': False, 'discount_factor': GAMMA, 'priority': True}
    sections = {'model': model | cfg.pop('model', {}), 'learn': learn}
    spec = SPEC if name == 'sac_discrete' else CONTINUOUS
    return apart(create_policy(base | sections | cfg, spec, seed=0))


def sequences_of(policy: Any, seed: int = 0, **more: Any) -> Batch:
    actions = 4 if policy.spec is SPEC else None
    return random_sequences(LENGTHS, BURN_IN, STEPS, policy.model.state_shape, actions, seed, **more)


def walked(nets: list[Any], places: list[int], data: Batch) -> list[tuple[int, int, list[Any], list[Any]]]:
    """Does the steps of each sequence one by one.

    Args:
        nets: Networks with a memory.
        places: Which part of the recurrent state is that of each network.
        data: Padded sequences.

    Returns:
        For each step behind the burn-in its sequence, its column, and what each core returns at its obs and at its next
        obs, float32 [1, H].
    """
    steps = []
    for i, mask in enumerate(data['mask']):
        real = np.flatnonzero(mask)
        parts = torch.from_numpy(data['state'][i, real[0]])[None].chunk(max(places) + 1, 1)
        states, outputs = [parts[place] for place in places], []
        for obs in [*data['obs'][i, real], data['next_obs'][i, real[-1]]]:
            seen = torch.from_numpy(obs)[None]
            after = [net.memory.step(seen, state) for net, state in zip(nets, states, strict=True)]
            outputs.append([output for output, _ in after])
            states = [state for _, state in after]
        steps += [(i, t, outputs[k], outputs[k + 1]) for k, t in enumerate(real) if t >= BURN_IN]
    return steps


def looped(policy: Any, data: Batch) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Returns the losses of critics and actor, and the absolute TD errors of each sequence, for discrete actions."""
    actor, critics = policy.model.actor, list(policy.model.critic.nets)
    targets = list(policy.update.targets.network['critic'].nets)
    squares, actor_terms, errors = [], [], [[] for _ in LENGTHS]
    for i, t, here, there in walked([actor, *critics, *targets], [0, 1, 2, 1, 2], data):
        values = [net.head(h)[0] for net, h in zip(critics, here[1:3], strict=True)]
        log_prob = actor.head(here[0])[0].log_softmax(0)
        with torch.no_grad():
            next_log_prob = actor.head(there[0])[0].log_softmax(0)
            behind = torch.stack([net.head(h)[0] for net, h in zip(targets, there[3:], strict=True)]).amin(0)
            soft = (next_log_prob.exp() * (behind - ALPHA * next_log_prob)).sum()
        target = float(data['reward'][i, t]) + GAMMA * (1 - int(data['terminated'][i, t])) * soft
        each = torch.stack([value[int(data['action'][i, t])] for value in values])
        squares.append(float(data['IS'][i]) * (target - each).square())
        errors[i].append(float((target - each).detach().abs().mean()))
        lower = torch.stack(values).amin(0).detach()
        actor_terms.append((log_prob.exp() * (ALPHA * log_prob - lower)).sum())
    losses = torch.stack(squares).mean(0).sum(), torch.stack(actor_terms).mean()
    return *losses, [np.array(each) for each in errors]


def looped_continuous(
    policy: Any, data: Batch, rows: Any
) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Returns the same for continuous actions, with the random numbers of ``rows``."""
    actor, critics, own = policy.model.actor, list(policy.model.critic.nets), policy.update.targets.network
    targets = list(own['critic'].nets) if 'critic' in own else critics
    target_actor, is_soft = (own['actor'], False) if 'actor' in own else (actor, True)
    nets, count = [actor, *critics, target_actor, *targets], len(critics)
    places = [*range(count + 1)] * 2
    critic_terms, actor_terms, errors = [], [], [[] for _ in LENGTHS]

    def valued(nets: list[Any], outputs: list[Any], action: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [net.head(torch.cat([h, action], 1))[0] for net, h in zip(nets, outputs, strict=True)]
        )

    for k, (i, t, here, there) in enumerate(walked(nets, places, data)):
        goes_on, noise = GAMMA * (1 - int(data['terminated'][i, t])), rows['next_noise'][k : k + 1]
        with torch.no_grad():
            bonus: Any = 0.0
            if is_soft:
                action, log_prob = squashed_gaussian(*actor.head(there[0]), noise)
                bonus = ALPHA * log_prob
            else:
                action = target_actor.head(there[count + 1])
                action = (action + (0.2 * noise).clamp(-0.5, 0.5)).clamp(-1, 1)
            behind = valued(targets, there[count + 2 :], action)  # [critics, quantiles]
            kept = behind.amin(0) if behind.shape[1] == 1 else behind.flatten().sort().values[: 2 * count]
            target = float(data['reward'][i, t]) + goes_on * (kept - bonus)
        taken = torch.from_numpy(data['action'][i, t])[None]
        value = valued(critics, here[1 : count + 1], taken)
        errors[i].append(float((target.mean() - value.detach().mean(1)).abs().mean()))
        if behind.shape[1] == 1:
            critic_terms.append((target - value).square().sum())
        else:
            critic_terms.append(sum(quantile_huber_loss(own[None], target[None]).sum() for own in value))
        if is_soft:
            chosen, log_prob = squashed_gaussian(*actor.head(here[0]), rows['noise'][k : k + 1])
            lower = valued(critics, here[1 : count + 1], chosen).mean(1)
            lower = lower.amin() if behind.shape[1] == 1 else lower.mean()
            actor_terms.append(ALPHA * log_prob - lower)
        else:
            actor_terms.append(-valued(critics[:1], here[1:2], actor.head(here[0])))
    losses = torch.stack(critic_terms).mean(), torch.stack(actor_terms).mean()
    return *losses, [np.array(each) for each in errors]


def test_losses_gradients_and_priorities_equal_those_of_a_loop() -> None:
    policy = make(core='gru', priority_IS_weight=True)
    data = sequences_of(policy, IS=np.array([1, 0.5, 0.1, 2], np.float32))
    critic_loss, actor_loss, errors = looped(policy, data)
    parameters = list(policy.model.parameters())
    wanted = torch.autograd.grad(critic_loss + actor_loss, parameters)
    got: dict[str, torch.Tensor] = {}
    for name, optimizer in policy.update.optimizers.items():
        optimizer.step = lambda loss, name=name, **parts: got.__setitem__(name, loss)
    metrics = policy.learn_mode.forward(data)
    assert float(got['critic'].detach()) == pytest.approx(float(critic_loss.detach()), rel=1e-5)
    assert float(got['actor'].detach()) == pytest.approx(float(actor_loss.detach()), rel=1e-5)
    gradients = torch.autograd.grad(got['critic'] + got['actor'], parameters)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    eta = policy._cfg.priority_eta
    priority = [eta * each.max() + (1 - eta) * each.mean() for each in errors]
    np.testing.assert_allclose(metrics['priority'], priority, rtol=1e-4)


CASES: dict[str, dict[str, Any]] = {
    'sac gru': {},
    'sac lstm': {},
    'td3 lstm': {},
    'tqc gru': dict(model=dict(num_quantiles=3, n_critic=3), learn=dict(dropped_quantiles=1)),
}


@pytest.mark.parametrize('case', CASES)
def test_losses_of_continuous_actions_equal_those_of_a_loop_and_the_burn_in_has_none(case: str) -> None:
    policy = make(*case.split(), **{name: dict(section) for name, section in CASES[case].items()})
    data = sequences_of(policy)
    rows = policy.columns(data)
    assert len(rows['reward']) == sum(own for _, own, _ in LENGTHS)
    critic_loss, actor_loss, errors = looped_continuous(policy, data, rows)
    got, _, error, _ = policy.update.critic_loss(rows)
    critic, actor = list(policy.model.critic.parameters()), list(policy.model.actor.parameters())
    for loss, wanted, parameters in (
        (got, critic_loss, critic),
        (policy.update.actor_loss(rows)[0], actor_loss, actor),
    ):
        torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
        pair = [torch.autograd.grad(each, parameters) for each in (loss, wanted)]
        for one, other in zip(*pair, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    eta = policy._cfg.priority_eta
    priority = [eta * each.max() + (1 - eta) * each.mean() for each in errors]
    np.testing.assert_allclose(policy.update.targets.priority(error, rows), priority, rtol=1e-4)
    assert set(policy.learn_mode.forward(data)) >= {'priority', 'actor_loss'}


def test_the_actor_waits_for_its_turn_and_learns_from_sequences_then() -> None:
    policy = make('td3', 'gru', learn=dict(actor_update_freq=3))
    turns = ['actor_loss' in policy.learn_mode.forward(sequences_of(policy, seed=i)) for i in range(6)]
    assert turns == [True, False, False, True, False, False]


@pytest.mark.parametrize('name', ['sac', 'td3'])
def test_acting_step_by_step_is_what_learning_sees_and_noise_goes_on_within_an_episode(name: str) -> None:
    policy = make(name, 'gru', collect=dict(noise_correlation=0.9))
    face, envs = policy.collect_mode, np.array([2, 0])
    noise = ExplorationNoise(2, 0.9, copy.deepcopy(policy.rng))
    settings = dict(noise_sigma=0.5) if name == 'td3' else {}
    state = torch.zeros(2, *policy.model.state_shape)
    for step in range(4):
        obs = np.random.default_rng(step).normal(size=(2, 3)).astype(np.float32)
        output = face.forward(obs, envs, **settings)
        np.testing.assert_array_equal(output['state'], state)
        drawn = torch.from_numpy(noise.draw(envs))
        with torch.no_grad():
            wanted, state = policy.model.step(torch.from_numpy(obs), state)
        if name == 'td3':
            wanted = (wanted + 0.5 * drawn).clamp(-1, 1)
        else:
            wanted = (wanted[0] + wanted[1].exp() * drawn).tanh()
        torch.testing.assert_close(torch.from_numpy(output['unit_action']), wanted)
        if step == 1:
            face.reset(np.array([0])), noise.reset(np.array([0]))
            state[1] = 0


def test_random_actions_are_recorded_as_they_were_with_the_state_that_goes_on() -> None:
    policy = make('td3', 'lstm')
    face = policy.random_collect_mode(np.random.default_rng(0))
    obs, envs, ends = np.ones((3, 3), np.float32), np.arange(3), np.zeros(3, bool)
    for step in range(3):
        output = face.forward(obs, envs)
        timestep = TimeStep(obs, np.zeros(3), ends, ends, (), envs)
        rows = face.process_transition(obs, output, timestep)
        np.testing.assert_allclose(rows['action'], (output['action'] + 0.5) / 1.5, atol=1e-6)
        assert rows['state'].any() == (step > 0)


def test_evaluation_remembers_apart_and_sees_the_actor_alone() -> None:
    policy, obs, envs = make('sac', 'gru'), np.ones((2, 3), np.float32), np.arange(2)
    first = policy.eval_mode.forward(obs, envs)['action']
    assert (policy.eval_mode.forward(obs, envs)['action'] != first).all()
    assert not policy.greedy_collect_mode.forward(obs, envs)['state'].any()
    assert policy._memory.collect.get(envs).all() and not policy._memory.evaluation.get(envs)[:, 1:].any()
    policy.eval_mode.reset(None)
    np.testing.assert_array_equal(policy.eval_mode.forward(obs, envs)['action'], first)


@pytest.mark.slow
def test_a_core_recalls_the_class_of_the_first_step(tmp_path: Any) -> None:
    assert recall_run('sac_discrete', 'gru').stopped


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'core'), [('sac', 'gru'), ('sac', None)])
def test_only_a_policy_with_a_core_recalls_the_number_of_the_first_step(
    name: str, core: str | None, tmp_path: Any
) -> None:
    plain = dict(buffer=dict(type='naive'), policy_=dict(random_collect_size=200))
    run = recall_run(name, core, max_env_step=4000, **({} if core else plain))
    assert run.stopped == bool(core) and (run.evaluator.best < 0.6) != bool(core)
