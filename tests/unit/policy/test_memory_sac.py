"""Discrete SAC with a core: losses, gradients and priorities equal those of a loop over sequences and their steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from memory import recall_run

from rlframe import config
from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy import create_policy
from rlframe.policy.sac_discrete import SACDiscretePolicy

SPEC = EnvSpec(
    gymnasium.spaces.Box(-9, 9, (3,), np.float32), gymnasium.spaces.Discrete(4, start=2), name='Toy'
)
BURN_IN, STEPS, GAMMA, ALPHA = 3, 5, 0.9, 0.3
LENGTHS = [(3, 5), (1, 5), (0, 2), (2, 5)]
"""Real steps of the burn-in and of the rest of each sequence."""


def make(core: str = 'lstm', **cfg: Any) -> SACDiscretePolicy:
    torch.manual_seed(0)
    model = dict(core=core, core_hidden_size=5, encoder_hidden_size_list=[6], activation='tanh')
    learn = dict(alpha=ALPHA, burn_in=BURN_IN)
    base = {'type': 'sac_discrete', 'cuda': False, 'discount_factor': GAMMA, 'priority': True}
    policy: Any = create_policy(base | {'model': model, 'learn': learn} | cfg, SPEC, seed=0)
    with torch.no_grad():
        for parameter in policy._target_model.parameters():
            parameter.add_(torch.randn_like(parameter))
    return policy


def sequences_of(policy: SACDiscretePolicy, padding: float = 0.0, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    shape = len(LENGTHS), BURN_IN + STEPS
    mask = np.zeros(shape, bool)
    for i, (early, own) in enumerate(LENGTHS):
        mask[i, BURN_IN - early : BURN_IN + own] = True
    obs = rng.normal(size=(shape[0], shape[1] + 1, 3)).astype(np.float32)
    state = rng.normal(size=(*shape, *policy._model.state_shape)).astype(np.float32)
    columns = dict(
        obs=obs[:, :-1],
        next_obs=obs[:, 1:],
        action=rng.integers(4, size=shape).astype(np.uint8),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=rng.random(shape) < 0.3,
        state=state,
    )
    for name in ('obs', 'next_obs', 'reward', 'state'):
        columns[name] = columns[name].copy()
        columns[name][~mask] = padding
    return Batch(columns | {'mask': mask})


def looped(policy: SACDiscretePolicy, data: Batch) -> tuple[torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Returns the losses of critics and actor, and the absolute TD errors of each sequence, step by step."""
    actor, critics = policy._model.actor, list(policy._model.critic.nets)
    targets = list(policy._target_model['critic'].nets)
    squares, actor_terms, errors = [], [], []
    for i, mask in enumerate(data['mask']):
        real = np.flatnonzero(mask)
        nets = [actor, *critics, *targets]
        parts = torch.from_numpy(data['state'][i, real[0]])[None].chunk(1 + len(critics), 1)
        states, outputs = [*parts, *parts[1:]], []
        seen = [*data['obs'][i, real], data['next_obs'][i, real[-1]]]
        for obs in seen:
            steps = [net.step(torch.from_numpy(obs)[None], s) for net, s in zip(nets, states, strict=True)]
            states = [after for _, after in steps]
            outputs.append([output[0] for output, _ in steps])
        errors.append([])
        for at, t in enumerate(real):
            if t < BURN_IN:
                continue
            logit, *values = outputs[at]
            log_prob = logit.log_softmax(0)
            next_log_prob = outputs[at + 1][0].detach().log_softmax(0)
            behind = torch.stack(outputs[at + 1][1 + len(critics) :]).amin(0).detach()
            soft = (next_log_prob.exp() * (behind - ALPHA * next_log_prob)).sum()
            target = float(data['reward'][i, t]) + GAMMA * (1 - int(data['terminated'][i, t])) * soft
            each = torch.stack([value[int(data['action'][i, t])] for value in values[: len(critics)]])
            squares.append((target - each).square())
            errors[-1].append(float((target - each).detach().abs().mean()))
            lower = torch.stack(values[: len(critics)]).amin(0).detach()
            actor_terms.append((log_prob.exp() * (ALPHA * log_prob - lower)).sum())
    losses = torch.stack(squares).mean(0).sum(), torch.stack(actor_terms).mean()
    return *losses, [np.array(each) for each in errors]


@pytest.mark.parametrize('core', ['gru', 'lstm'])
def test_losses_gradients_and_priorities_equal_those_of_a_loop(core: str) -> None:
    policy = make(core)
    data = sequences_of(policy)
    critic_loss, actor_loss, errors = looped(policy, data)
    parameters = list(policy._model.parameters())
    wanted = torch.autograd.grad(critic_loss + actor_loss, parameters)
    got: dict[str, torch.Tensor] = {}
    for name, optimizer in policy._optimizers.items():
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


def test_garbage_in_the_padding_changes_nothing() -> None:
    states = []
    for padding in (0.0, 1e6):
        policy = make(priority_IS_weight=True)
        data = sequences_of(policy, padding).replace(IS=np.array([1, 0.5, 0.1, 2], np.float32))
        metrics = [policy.learn_mode.forward(data) for _ in range(3)][-1]
        states.append([float(metrics['total_loss']), *(p.tolist() for p in policy._model.parameters())])
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ('policy', 'buffer', 'says'),
    [
        ({}, 'naive', ['policy.other.replay_buffer.type', "got 'naive'", "'sequence'"]),
        (dict(nstep=3), 'sequence', ['policy.nstep', 'got 3', 'expected 1']),
        (dict(collect=dict(unroll_len=4)), 'sequence', ['policy.other.replay_buffer.unroll_len']),
    ],
)
def test_options_that_do_not_fit_a_core_name_what_does(
    policy: dict[str, Any], buffer: str, says: list[str]
) -> None:
    collect = dict(collector=dict(mark_episodes=True)) | policy.get('collect', {})
    main = dict(
        env=dict(env_id='CartPole-v1'), policy=dict(model=dict(core='gru')) | policy | dict(collect=collect)
    )
    create = dict(policy=dict(type='sac_discrete'), replay_buffer=dict(type=buffer))
    with pytest.raises(ConfigError) as caught:
        config.compile_config(main, create)
    assert all(text in str(caught.value) for text in says), str(caught.value)


@pytest.mark.slow
def test_a_core_recalls_the_class_of_the_first_step(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert recall_run('sac_discrete', 'gru').stopped
