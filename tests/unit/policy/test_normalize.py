"""Normalisation: the statistics are those of all data, networks see nothing else, and nothing of it is forgotten."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import counting_manager
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_toys import random_block

from rlframe.data import EnvSpec, TimeStep
from rlframe.errors import CheckpointMismatchError, IncompatibleError
from rlframe.policy import create_policy
from rlframe.policy.parts.normalize import Normalizer, ObsNormalizer, RewardNormalizer, RunningMoments
from rlframe.worker import SampleSerialCollector

BOX = gymnasium.spaces.Box(-9, 9, (3,), np.float32)
SPEC = EnvSpec(BOX, gymnasium.spaces.Discrete(2), name='Toy')


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.floats(-1e4, 1e4), st.integers(0, 99))
def test_moments_of_parts_are_those_of_the_whole(sizes: list[int], offset: float, seed: int) -> None:
    parts = [np.random.default_rng(seed + i).normal(offset, 1 + i, (n, 2)) for i, n in enumerate(sizes)]
    moments = RunningMoments((2,))
    for part in parts:
        moments.update(part)
    whole = np.concatenate(parts)
    assert moments.count == len(whole)
    if len(whole):
        np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(moments.var, whole.var(0), rtol=1e-6, atol=1e-6)
    assert (moments.std > 0).all()


def test_obs_are_normalised_by_what_was_taken_into_use_and_clipped() -> None:
    normalizer, rng = ObsNormalizer(SPEC), np.random.default_rng(0)
    rows = (rng.normal(size=(500, 3)) * [1, 5, 0.1] + [0, 100, -3]).astype(np.float32)
    assert normalizer.is_empty and (normalizer(rows[:, :1] * np.ones(3)) == rows[:, :1].clip(-10, 10)).all()
    normalizer.gather(rows)
    np.testing.assert_array_equal(normalizer(rows), rows.clip(-10, 10))
    normalizer.refresh()
    got = normalizer(rows.reshape(5, 100, 3))
    assert got.dtype == np.float32 and got.shape == (5, 100, 3)
    np.testing.assert_allclose(got.reshape(-1, 3), (rows - rows.mean(0)) / rows.std(0), rtol=1e-3, atol=1e-3)
    assert normalizer(np.full((1, 3), 1e9, np.float32)).tolist() == [[10, 10, 10]]


def test_of_structured_obs_only_real_numbers_are_normalised() -> None:
    space = gymnasium.spaces.Dict(
        speed=gymnasium.spaces.Box(-9, 9, (2,), np.float64),
        kind=gymnasium.spaces.Discrete(3),
        eye=gymnasium.spaces.Box(0, 255, (4, 4, 3), np.uint8),
        rest=gymnasium.spaces.Tuple([gymnasium.spaces.Box(-1, 1, (1,), np.float32)]),
    )
    rest = np.dtype([('0', np.float32, (1,))])
    obs = np.zeros(
        100,
        [('speed', np.float64, (2,)), ('kind', np.int64), ('eye', np.uint8, (4, 4, 3)), ('rest', rest)],
    )
    rng = np.random.default_rng(0)
    obs['speed'], obs['kind'] = rng.normal(7, 2, (100, 2)), rng.integers(3, size=100)
    obs['rest']['0'], obs['eye'] = rng.normal(-5, 0.1, (100, 1)), 200
    normalizer = ObsNormalizer(EnvSpec(space, SPEC.action_space))
    normalizer.gather(obs)
    normalizer.refresh()
    got = normalizer(obs)
    for part in (got['speed'], got['rest']['0']):
        assert part.dtype == np.float32
        np.testing.assert_allclose(part.mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(part.std(0), 1, atol=1e-3)
    for name in ('kind', 'eye'):
        np.testing.assert_array_equal(got[name], obs[name])
    cfg = {'normalize_obs': True, 'normalize_reward': False, 'on_policy': False}
    one, other = (Normalizer(cfg, EnvSpec(space, SPEC.action_space)) for _ in range(2))
    one.obs.gather(obs)
    other.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(other.obs(obs), got)


def test_obs_without_real_numbers_are_refused() -> None:
    spec = EnvSpec(gymnasium.spaces.Discrete(4), SPEC.action_space, name='Classes')
    with raises(IncompatibleError):
        create_policy({'type': 'dqn', 'normalize_obs': True}, spec)


def test_rewards_are_divided_by_the_deviation_of_the_return_of_each_env() -> None:
    normalizer, rng = RewardNormalizer(0.8), np.random.default_rng(0)
    returns, seen = np.zeros(3), []
    for _ in range(200):
        env_id = rng.permutation(3)[: rng.integers(1, 4)]
        reward, done = rng.normal(3, 2, len(env_id)), rng.random(len(env_id)) < 0.2
        normalizer.gather(reward, done, env_id)
        for i, r, ended in zip(env_id, reward, done, strict=True):
            returns[i] = 0.8 * returns[i] + r
            seen.append(returns[i])
            returns[i] *= not ended
    np.testing.assert_allclose(normalizer(np.array([1.0, -2.0])), np.array([1, -2]) / np.std(seen), rtol=1e-5)
    np.testing.assert_allclose(normalizer.running, returns)


def make(name: str, **cfg: Any) -> Any:
    torch.manual_seed(0)
    base = {'type': name, 'cuda': False, 'normalize_obs': True, 'normalize_reward': True}
    return create_policy(base | cfg, EnvSpec(BOX, SPEC.action_space, name='Toy'))


def collector_of(policy: Any) -> SampleSerialCollector:
    return SampleSerialCollector({}, counting_manager(2, lengths=4), policy.collect_mode)


def told(policy: Any, name: str) -> list[np.ndarray]:
    """Returns a list that what the policy's own function of that name is given is put into."""
    seen: list[np.ndarray] = []
    real = getattr(policy, name)

    def watched(obs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(obs)
        return real(obs, *args, **kwargs)

    setattr(policy, name, watched)
    return seen


def test_off_policy_buffers_hold_raw_rows_and_networks_see_normalised_ones() -> None:
    policy = make('dqn', discount_factor=0.5)
    acted, learnt = told(policy, 'forward_collect'), told(policy, 'forward_learn')
    rows = collector_of(policy).collect(40)
    raw = rows['obs'].astype(float)
    assert raw[:, 2].max() == 3 and raw[:, 1].max() > 3, 'rows are as the env gave them'
    np.testing.assert_array_equal(acted[0], [[0, 0, 0], [1, 0, 0]])
    assert abs(acted[-1]).max() < 4 and acted[-1][:, 1].max() < raw[:, 1].max() / 2
    policy.learn_mode.forward(rows)
    (data,) = learnt
    np.testing.assert_allclose(data['obs'], (raw - raw.mean(0)) / raw.std(0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        data['next_obs'], (rows['next_obs'] - raw.mean(0)) / raw.std(0), rtol=1e-3, atol=1e-3
    )
    ratio = data['reward'][rows['reward'] != 0] / rows['reward'][rows['reward'] != 0]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
    assert 0 < ratio[0] < 1e-3


def test_on_policy_rounds_are_learnt_from_as_they_were_acted_in() -> None:
    policy = make('ppo', learn={'epoch_per_collect': 1, 'batch_size': None})
    acted = told(policy, 'forward_collect')
    collector = collector_of(policy)
    for number in range(4):
        acted.clear()
        samples = collector.collect(16)
        seen = np.stack(acted).reshape(-1, 3)
        if number:
            np.testing.assert_array_equal(samples['obs'], seen)
        (update,) = policy.learn_mode.forward(samples)
        assert abs(float(update()['approx_kl'])) < (1e-6 if number else 1e-3)
    state = policy.learn_mode.state_dict()['normalizer']
    assert int(state['obs.count']) == 64 == int(state['reward.count'])
    assert abs(samples['obs']).max() < 4 and samples['obs'].shape == (16, 3)


@pytest.mark.parametrize('name', ['dqn', 'ppo'])
def test_statistics_are_part_of_the_state_and_belong_to_what_is_normalised(name: str) -> None:
    policy, other = make(name), make(name)
    collector_of(policy).collect(18)
    other.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    one, two = (p.learn_mode.state_dict()['normalizer'] for p in (policy, other))
    assert one.keys() == two.keys() and 'running' in one
    for key in one:
        np.testing.assert_array_equal(one[key], two[key])
    assert 'running' not in policy.collect_mode.state_dict()['normalizer']
    for cfg in ({'normalize_obs': False}, {'normalize_reward': False}):
        with raises(CheckpointMismatchError):
            make(name, **cfg).collect_mode.load_state_dict(policy.collect_mode.state_dict())
    with raises(CheckpointMismatchError):
        policy.collect_mode.load_state_dict({'model': policy.model.state_dict()})


def test_the_last_reward_of_an_episode_counts_with_the_return_before_it() -> None:
    """As a rollout does it: an env whose episode ended is reset before its last row is processed."""
    policy = make('dqn', discount_factor=0.9, normalize_obs=False)
    face, obs, rng = policy.collect_mode, np.zeros((2, 3), np.float32), np.random.default_rng(0)
    returns, seen, off = np.zeros(2), [], np.zeros(2, bool)
    for _ in range(300):
        output, reward = face.forward(obs, np.arange(2)), rng.normal(1, 5, 2)
        done = rng.random(2) < 0.2
        if done.any():
            face.reset(np.flatnonzero(done))
        face.process_transition(obs, output, TimeStep(obs, reward, done, off, ({}, {}), np.arange(2)))
        returns = 0.9 * returns + reward
        seen += returns.tolist()
        returns[done] = 0
    state = policy.learn_mode.state_dict()['normalizer']
    np.testing.assert_allclose(np.sqrt(state['reward.var']), np.std(seen))
    np.testing.assert_allclose(state['running'], returns)


def test_padding_of_ragged_blocks_is_not_gathered() -> None:
    policy = make('ppo')
    block = random_block(6, 2, ragged=True, actions=2)
    policy.collect_mode.get_train_sample(block)
    state = policy.learn_mode.state_dict()['normalizer']
    assert int(state['obs.count']) == 6 + 4 == int(state['reward.count'])
    np.testing.assert_allclose(state['obs.mean'], block['obs'][block['mask']].mean(0), rtol=1e-5)
