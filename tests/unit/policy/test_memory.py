"""Policies with a recurrent core: what they record and learn equals acting step by step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from memory import recall_run

from rlframe.data import Batch, EnvSpec, TimeStep
from rlframe.model.core import Unroll
from rlframe.policy import create_policy
from rlframe.policy.parts.sequences import Sequences, begins_of
from rlframe.policy.ppo import PPOPolicy

BOX = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
SPEC = EnvSpec(BOX, gymnasium.spaces.Discrete(4), name='Toy')
STEPS, ENVS = 7, 3


def make(
    name: str = 'ppo', core: str = 'lstm', spec: EnvSpec = SPEC, share: bool = False, **cfg: Any
) -> PPOPolicy:
    torch.manual_seed(0)
    model = dict(core=core, core_hidden_size=5, encoder_hidden_size_list=[6], share_encoder=share)
    policy: Any = create_policy({'type': name, 'cuda': False, 'model': model} | cfg, spec, seed=0)
    with torch.no_grad():
        policy.model.actor.weight.mul_(100)  # so that a wrong state shows
    return policy


def collected(policy: PPOPolicy, rounds: int = 1, order: Any = slice(None)) -> Batch:
    """Collects a block from envs whose episodes end at different steps."""
    rng = np.random.default_rng(1)
    face, blocks = policy.collect_mode, []
    space = policy.spec.observation_space
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(ENVS)])[order]
    for _ in range(rounds):
        rows = []
        for _ in range(STEPS):
            output = face.forward(obs, np.arange(ENVS))
            after = np.stack([space.sample() for _ in range(ENVS)])[order]
            ends = rng.random((2, ENVS))[:, order] < 0.2
            reward = rng.normal(size=ENVS)[order].astype(np.float32)
            step = TimeStep(after, reward, ends[0], ends[1] & ~ends[0], (), np.arange(ENVS))
            rows.append(Batch(face.process_transition(obs, output, step)))
            face.reset(np.flatnonzero(step.done))
            obs = np.where(step.done[:, None], np.stack([space.sample() for _ in range(ENVS)])[order], after)
        blocks.append(Batch.stack(rows))
    stamp = np.zeros((STEPS, ENVS), np.int32)
    return blocks[-1].replace(collect_iter=stamp)


def walked(policy: PPOPolicy, block: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns logit and value of each row, and the value of its next obs, step by step and env by env."""
    logit, value = np.zeros((STEPS, ENVS, 4), np.float32), np.zeros((STEPS, ENVS), np.float32)
    next_value = np.zeros((STEPS, ENVS), np.float32)
    model = policy.model
    with torch.no_grad():
        for n in range(ENVS):
            state = torch.from_numpy(block['state'][:1, n])
            for t in range(STEPS):
                obs, reached = (torch.from_numpy(block[name][t : t + 1, n]) for name in ('obs', 'next_obs'))
                value[t, n] = model.value_step(obs, state)[0].item()
                out, state = model.step(obs, state)
                logit[t, n] = out.numpy()
                next_value[t, n] = model.value_step(reached, state)[0].item()
                if block['terminated'][t, n] or block['truncated'][t, n]:
                    state = torch.zeros_like(state)
    return logit, value, next_value


@pytest.mark.parametrize(('core', 'share'), [('gru', False), ('lstm', True)])
def test_samples_and_updates_see_what_acting_saw_across_rounds_and_episode_ends(
    core: str, share: bool
) -> None:
    policy = make(core=core, share=share)
    block = collected(policy, rounds=2)
    done = block['terminated'] | block['truncated']
    assert done[:-1].any() and block['state'][0].any(), 'episodes end inside, and states are carried over'
    logit, value, next_value = walked(policy, block)
    np.testing.assert_allclose(block['logit'], logit, rtol=1e-5, atol=1e-5)
    got = policy._block_values(block, done | (np.arange(STEPS) == STEPS - 1)[:, None])
    np.testing.assert_allclose(got[0], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], next_value, rtol=1e-5, atol=1e-5)
    samples = policy.collect_mode.get_train_sample(block)
    np.testing.assert_array_equal(samples['obs'], block['obs'].swapaxes(0, 1).reshape(-1, 3))
    for unroll_len in (None, 3):
        policy._cfg.learn['unroll_len'] = unroll_len
        columns = {name: torch.from_numpy(samples[name]) for name in ('obs', 'return_')}
        batches = list(policy._minibatches(columns, samples, 6))
        assert len(batches) > 1
        for rows in batches:
            out, values = policy.model(rows['obs'], rows['unroll'])
            at = [int(np.flatnonzero((samples['obs'] == obs).all(1))[0]) for obs in rows['obs'].numpy()]
            want = logit.swapaxes(0, 1).reshape(-1, 4)[at]
            np.testing.assert_allclose(out.detach().numpy(), want, rtol=1e-4, atol=1e-5)
            want = value.swapaxes(0, 1).reshape(-1)[at]
            np.testing.assert_allclose(values.detach().numpy(), want, rtol=1e-4, atol=1e-5)


def test_sequences_are_cut_at_episode_ends_and_at_unroll_len() -> None:
    done = np.zeros((6, 2), bool)
    done[1, 0] = done[5, 1] = True
    begins = begins_of(done).swapaxes(0, 1).reshape(-1)
    whole, short = Sequences(begins), Sequences(begins, 4)
    assert whole.start.tolist() == [0, 2, 6] and whole.length.tolist() == [2, 4, 6]
    assert short.start.tolist() == [0, 2, 6, 10] and short.length.tolist() == [2, 4, 4, 2]
    row, step, sequence = (part.tolist() for part in whole.rows(np.array([2, 0])))
    assert row == [6, 7, 8, 9, 10, 11, 0, 1] and step == [0, 1, 2, 3, 4, 5, 0, 1]
    assert sequence == [0] * 6 + [1] * 2


def test_batches_hold_every_sequence_once_and_about_as_many_steps_as_asked_for() -> None:
    rng = np.random.default_rng(0)
    sequences = Sequences(rng.random(512) < 0.1)
    batches = sequences.batches(rng.permutation(len(sequences)), 64)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sequences))) and len(batches) == 8
    assert all(abs(int(sequences.length[batch].sum()) - 64) <= sequences.length.max() for batch in batches)


@pytest.mark.parametrize(
    ('name', 'space'),
    [
        ('ppo', gymnasium.spaces.Box(-1, 1, (2,), np.float32)),
        ('a2c', gymnasium.spaces.MultiDiscrete([2, 3])),
    ],
)
def test_a_round_of_any_action_space_starts_at_a_ratio_of_1(name: str, space: Any) -> None:
    policy = make(name, spec=EnvSpec(BOX, space, name='Toy'), learn=dict(epoch_per_collect=1))
    samples = policy.collect_mode.get_train_sample(collected(policy))
    metrics = next(iter(policy.learn_mode.forward(samples)))()
    assert float(metrics['approx_kl']) == pytest.approx(0.0, abs=1e-5)


def test_collection_and_evaluation_remember_apart_and_resets_forget() -> None:
    policy, obs, envs = make(), np.ones((2, 3), np.float32), np.arange(2)
    first = policy.collect_mode.forward(obs, envs)
    policy.eval_mode.forward(obs, envs)
    second = policy.collect_mode.forward(obs, envs)
    assert not first['state'].any() and second['state'].all()
    policy.eval_mode.reset(None)
    policy.collect_mode.reset(np.array([1]))
    third = policy.collect_mode.forward(obs, envs)
    assert third['state'][0].any() and not third['state'][1].any()
    other = make()
    other.learn_mode.load_state_dict(policy.learn_mode.state_dict())
    left, right = (p.collect_mode.forward(obs, envs) for p in (policy, other))
    for name in ('state', 'logit', 'action'):
        np.testing.assert_array_equal(left[name], right[name])


@pytest.mark.parametrize('core', ['gru', 'lstm'])
def test_r2d2_values_sequences_as_it_values_steps_with_either_core(core: str) -> None:
    torch.manual_seed(0)
    model = dict(core=core, lstm_hidden_size=5, encoder_hidden_size_list=[6])
    policy: Any = create_policy({'type': 'r2d2', 'cuda': False, 'model': model}, SPEC, seed=0)
    network, obs = policy.model, torch.randn(4, 3)
    assert isinstance(network.memory.core.rnn, torch.nn.GRU if core == 'gru' else torch.nn.LSTM)
    state = torch.randn(1, *network.state_shape)
    whole = network(obs, Unroll(torch.arange(4), torch.zeros(4, dtype=torch.int64), 4, state))
    for t in range(4):
        value, state = network.step(obs[t : t + 1], state)
        torch.testing.assert_close(value[0], whole[t], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_core_recalls_the_class_of_the_first_step(tmp_path: Any) -> None:
    assert recall_run('ppo', 'lstm').stopped
