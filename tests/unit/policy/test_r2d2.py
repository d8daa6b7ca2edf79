"""R2D2's targets, losses, priorities and recurrent states equal what going through the steps one by one gives."""

from __future__ import annotations

import copy
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from fakes import ShuffledEnvManager, config_pair, counted_reward, counting_manager
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import R2D2
from policy_toys import PLAIN, apart, random_sequences, small

from rlframe.config import compile_config
from rlframe.data import Batch, EnvSpec
from rlframe.policy import create_policy
from rlframe.policy.parts.sequences import reward_windows
from rlframe.policy.r2d2 import R2D2Policy, rescale, unscale
from rlframe.registry import BUFFER_REGISTRY
from rlframe.worker import SampleSerialCollector

GAMMA = 0.9


def make(spec: EnvSpec = PLAIN, seed: int = 0, model: Any = None, **cfg: Any) -> R2D2Policy:
    own = dict(lstm_hidden_size=5) | (model or {})
    return small('r2d2', spec, seed=seed, model=own, discount_factor=GAMMA, **cfg)


LENGTHS = [
    (3, 5, 'goes on'),
    (3, 5, 'terminated'),
    (1, 5, 'truncated'),
    (0, 2, 'terminated'),
    (0, 3, 'truncated'),
]


def walked(model: Any, data: Batch, i: int, burn_in: int) -> torch.Tensor:
    """Returns the values of one sequence's real steps and of the obs behind them, each from the state before it."""
    real = np.flatnonzero(data['mask'][i])
    state = torch.from_numpy(data['state'][i, real[0]])[None]
    values = []
    for column in real:
        value, state = model.step(torch.from_numpy(data['obs'][i, column])[None], state)
        if column >= burn_in:
            values.append(value[0])
    values.append(model.step(torch.from_numpy(data['next_obs'][i, real[-1]])[None], state)[0][0])
    return torch.stack(values)


def looped_targets(reward: Any, ending: bool, value: Any, discount_factor: float, nstep: int) -> list[float]:
    """The targets of an episode's steps, each summed by itself."""
    steps = len(reward)
    targets = []
    for t in range(steps):
        stop = min(t + nstep, steps)
        total = sum(discount_factor ** (k - t) * float(reward[k]) for k in range(t, stop))
        is_over = ending and stop == steps
        targets.append(total + (0 if is_over else discount_factor ** (stop - t) * float(value[stop])))
    return targets


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=4),
    nstep=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_targets_equal_those_of_a_loop(lengths: list[tuple[int, bool]], nstep: int, seed: int) -> None:
    rng, stop = np.random.default_rng(seed), np.cumsum([length for length, _ in lengths])
    reward, value = rng.normal(size=stop[-1]).astype(np.float32), rng.normal(size=stop[-1] + 1)
    begin = stop - [length for length, _ in lengths]
    for start, end, (_, ending) in zip(begin, stop, lengths, strict=True):
        row = np.arange(start, end)
        total, discount, last = reward_windows(reward, row, np.full(len(row), end), nstep, GAMMA)
        behind = np.where(ending & (last == end - 1), 0.0, value[last + 1])
        expected = looped_targets(reward[start:end], ending, value[start : end + 1], GAMMA, nstep)
        np.testing.assert_allclose(total + discount * behind, expected, rtol=1e-4, atol=1e-5)


def test_rescaling_is_inverted_and_keeps_signs() -> None:
    value = torch.tensor([-1e4, -3.0, -1e-3, 0.0, 0.5, 8.0, 1e5], dtype=torch.float64)
    torch.testing.assert_close(unscale(rescale(value)), value)
    assert float(rescale(torch.tensor(8.0))) == pytest.approx(2.008)
    assert (rescale(value).diff() > 0).all()


@pytest.mark.parametrize(
    ('burn_in', 'nstep', 'double', 'scaled', 'kappa'),
    [
        (0, 1, True, False, None),
        (3, 3, True, True, 0.5),
        (0, 3, False, True, None),
        (3, 1, False, False, None),
    ],
)
def test_loss_priority_and_gradient_equal_going_step_by_step(
    burn_in: int, nstep: int, double: bool, scaled: bool, kappa: float | None
) -> None:
    options = dict(double=double, nstep=nstep, value_rescale=scaled, priority_eta=0.7)
    policy = apart(
        make(
            **options,
            priority=True,
            priority_IS_weight=True,
            learn=dict(burn_in=burn_in, learning_rate=1e-3, kappa=kappa),
        ),
        0.3,
    )
    weight = np.array([1, 0.5, 0.25, 0.9, 0.1], np.float32)
    lengths = [(min(early, burn_in), own, ending) for early, own, ending in LENGTHS]
    data = random_sequences(lengths, burn_in, 5, (2, 5), IS=weight)
    reference = copy.deepcopy(policy.model)
    losses, priorities, wanted, said = [], [], [], []
    for i, (_, own, ending) in enumerate(lengths):
        online, target = (
            walked(reference, data, i, burn_in),
            walked(policy.update.targets.network, data, i, burn_in),
        )
        reached = target[range(own + 1), (online if double else target).argmax(1)].detach()
        row = slice(burn_in, burn_in + own)
        targets = torch.tensor(
            looped_targets(
                data['reward'][i, row],
                ending == 'terminated',
                unscale(reached) if scaled else reached,
                GAMMA,
                nstep,
            )
        )
        targets = rescale(targets) if scaled else targets
        value = online[range(own), data['action'][i, row].astype(int)]
        error = targets - value
        huber = torch.nn.functional.huber_loss(value, targets, delta=kappa or 1.0, reduction='none')
        losses.append(float(weight[i]) * (error.square() if kappa is None else huber))
        priorities.append(float(0.7 * error.detach().abs().max() + 0.3 * error.detach().abs().mean()))
        wanted += targets.tolist()
        said += value.tolist()
    metrics = policy.learn_mode.forward(data)
    loss = torch.cat(losses).mean()
    assert float(metrics['total_loss']) == pytest.approx(float(loss.detach()), rel=1e-4)
    np.testing.assert_allclose(metrics['priority'], priorities, rtol=1e-4)
    assert float(metrics['q_value']) == pytest.approx(np.mean(said), rel=1e-4)
    assert float(metrics['target_q_value']) == pytest.approx(np.mean(wanted), rel=1e-4)
    loss.backward()
    for (name, one), other in zip(policy.model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6, msg=name)


def collected(policy: R2D2Policy, manager: Any, count: int, **options: Any) -> Batch:
    collector = SampleSerialCollector(dict(mark_episodes=True), manager, policy.collect_mode)
    return collector.collect(count, policy_kwargs=options)


def test_stored_state_is_that_of_the_episode_replayed_from_its_start() -> None:
    manager: Any = counting_manager(4, lengths=[7, 3, 12], ending='truncated')
    policy = make(manager.spec, nstep=3)
    data = collected(policy, ShuffledEnvManager(manager), 150, eps=0.3)
    assert data['state'].dtype == np.float32 and data['state'].shape[1:] == (2, 5)
    np.testing.assert_array_equal(
        data['reward'], counted_reward(*data['next_obs'].T), 'not summed over 3 steps'
    )
    seen = set()
    for env, episode in {(int(o[0]), int(o[1])) for o in data['obs']}:
        rows = data[(data['obs'][:, 0] == env) & (data['obs'][:, 1] == episode)]
        assert rows['episode_step'].tolist() == rows['obs'][:, 2].tolist() == list(range(len(rows)))
        state = torch.zeros(1, 2, 5)
        for i in range(len(rows)):
            np.testing.assert_allclose(rows['state'][i], state[0].detach(), atol=1e-6)
            state = policy.model.step(torch.from_numpy(rows['obs'][i : i + 1]), state)[1]
        seen.add((episode, len(rows)))
    assert {(0, 7), (1, 3)} <= seen and np.abs(data['state'][data['episode_step'] > 0]).min(-1).max() > 0


@pytest.mark.parametrize(('nstep', 'scaled', 'burn_in'), [(1, False, 0), (3, True, 2), (9, False, 2)])
@pytest.mark.parametrize('piece', [256, 7])
def test_first_priorities_are_those_that_an_update_of_the_sequence_would_give(
    nstep: int, scaled: bool, burn_in: int, piece: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr('rlframe.policy.r2d2.PIECE', piece)
    manager: Any = counting_manager(4, lengths=[7, 3, 12, 31], ending='terminated')
    own = dict(nstep=nstep, value_rescale=scaled, priority_eta=0.7, first_priority='error')
    sequence = R2D2['buffer'] | dict(unroll_len=5, burn_in=burn_in)
    sections = dict(learn=dict(burn_in=burn_in), buffer=sequence, policy_=R2D2['policy_'] | own)
    policy: Any = create_policy(compile_config(*config_pair(**R2D2 | sections)).policy, manager.spec)
    data = collected(policy, ShuffledEnvManager(manager), 150, eps=0.3)
    data = data.replace(reward=np.random.default_rng(0).normal(size=150).astype(np.float32))
    data = data.replace(priority=policy._first_priority(data))
    buffer: Any = BUFFER_REGISTRY.build(sequence, sequence)
    buffer.push(data, 150)
    drawn = buffer.sample(600, 5, 0)
    with torch.no_grad():
        rows = policy.columns(drawn)
        expected = policy.update.targets.priority(policy.update.loss(rows).error, rows).numpy()
    assert len(set(drawn['replay_buffer_idx'])) > 100 and {3, 5} <= set(drawn['mask'][:, burn_in:].sum(1))
    np.testing.assert_allclose(data['priority'][drawn['replay_buffer_idx']], expected, rtol=1e-3, atol=1e-5)


def test_first_priorities_of_a_long_round_take_little_memory(monkeypatch: Any) -> None:
    manager: Any = counting_manager(1, lengths=[100_000])
    policy = make(manager.spec, priority=True, first_priority='error')
    data = collected(policy, manager, 10)
    data = Batch.cat([data] * 400).replace(episode_step=np.arange(4000))
    sizes: list[int] = []
    policy.model.memory.encoder.register_forward_hook(lambda _, given, output: sizes.append(len(given[0])))
    tracemalloc.start()
    priority = policy._first_priority(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert priority.shape == (4000,) and max(sizes) <= 256 and peak < 2**25


def test_burn_in_of_the_replay_buffer_is_that_of_the_policy() -> None:
    cfg = compile_config(*config_pair(**R2D2))
    assert cfg.policy.learn.burn_in == cfg.policy.other.replay_buffer.burn_in == 2


def test_weights_of_the_copied_core_are_put_together_again_as_cudnn_wants_them(monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(torch.nn.RNNBase, 'flatten_parameters', lambda self: seen.append(self))
    policy = make()
    assert seen[-1] is policy.update.targets.network.memory.core.rnn
