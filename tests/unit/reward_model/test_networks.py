"""Reward models with networks pay by the formulas of their papers, learn what they have seen, and continue from their states."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from runs import differences

from rlframe.data import Batch
from rlframe.data.observation import zero_obs
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.registry import REWARD_MODEL_REGISTRY

SPEC = EnvSpec(spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(4), name='Toy')
GRID = EnvSpec(
    spaces.Dict(direction=spaces.Discrete(4), image=spaces.Box(0, 255, (7, 7, 3), np.uint8)),
    spaces.Box(-1, 1, (2,), np.float32),
    name='Grid',
)
CURIOUS = ['icm', 'ngu', 'noveld', 'rnd']


def made(name: str, spec: EnvSpec = SPEC, **options: Any) -> Any:
    return REWARD_MODEL_REGISTRY.build(name, {'batch_size': 8} | options, spec, seed=0)


def rows(spec: EnvSpec = SPEC, count: int = 24, seed: int = 0) -> Batch:
    """Returns the steps of two envs."""
    rng = np.random.default_rng(seed)
    if spec is SPEC:
        obs: Any = rng.normal(size=(count + 1, 3)).astype(np.float32)
        action: Any = rng.integers(4, size=count)
    else:
        obs = zero_obs(spec.observation_space, count + 1)
        obs['direction'] = rng.integers(4, size=count + 1)
        obs['image'] = rng.integers(9, size=(count + 1, 7, 7, 3))
        action = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    half = np.arange(count) % (count // 2)
    marks = {'env_id': np.arange(count) // (count // 2), 'episode_step': half}
    return Batch(obs=obs[:-1], next_obs=obs[1:], action=action, reward=np.zeros(count), **marks)


@pytest.mark.parametrize('spec', [SPEC, GRID])
@pytest.mark.parametrize('name', CURIOUS)
def test_it_learns_the_states_that_it_was_shown(name: str, spec: EnvSpec) -> None:
    model = made(name, spec, update_per_collect=100)
    known = rows(spec)
    model.collected(known)

    def loss() -> float:
        return model.loss({name: model.column(name, known[name]) for name in model.columns}).item()

    before = loss()
    assert model.learn()['loss'] > 0
    assert loss() < 0.7 * before
    assert model.reward(known).shape == (24,) and (model.reward(known) >= 0).all()


@pytest.mark.parametrize('name', CURIOUS)
def test_it_continues_from_its_state_to_the_bit(name: str) -> None:
    one, other = made(name), made(name)
    one.collected(rows())
    one.learn()
    one.reward(rows())
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    found = []
    for model in (one, other):
        model.collected(rows(seed=1))
        found.append([model.learn(), model.reward(rows(seed=1)), model.state_dict()])
    assert differences(*found) == []


def features(network: Any, obs: Any) -> Any:
    with torch.no_grad():
        return network(torch.from_numpy(obs)).numpy().astype(float)


def test_rnd_and_noveld_pay_by_the_distance_of_predictor_and_target() -> None:
    new = rows()
    for name in ('rnd', 'noveld'):
        model = made(name, obs_norm=False)
        model.collected(new)
        predictor, target = model.network['predictor'], model.network['target']
        wrong = {
            side: features(predictor, new[side]) - features(target, new[side]) for side in ('obs', 'next_obs')
        }
        novelty = {side: np.sqrt(np.square(each).sum(1)) for side, each in wrong.items()}
        expected = np.square(wrong['next_obs']).mean(1)
        if name == 'noveld':
            expected = np.maximum(novelty['next_obs'] - 0.5 * novelty['obs'], 0)
        np.testing.assert_allclose(model.reward(new), expected, rtol=1e-4, atol=1e-6)


def test_noveld_pays_once_for_a_state_of_an_episode() -> None:
    model = made('noveld', scale=0.0)
    again = rows()
    again.columns['next_obs'] = np.repeat(again['next_obs'][:1], len(again), axis=0)
    model.collected(again)
    assert np.flatnonzero(model.reward(again)).tolist() == [0, 12]


def test_icm_pays_half_the_squared_distance_from_the_features_that_it_foresees() -> None:
    model, new = made('icm', obs_norm=False), rows()
    model.collected(new)
    before, after = (features(model.network['encoder'], new[side]) for side in ('obs', 'next_obs'))
    told = np.concatenate([before, np.eye(4)[new['action']]], 1).astype(np.float32)
    expected = np.square(features(model.network['foresee'], told) - after).sum(1) / 2
    np.testing.assert_allclose(model.reward(new), expected, rtol=1e-4)


def test_ngu_pays_by_the_nearest_states_of_the_episode() -> None:
    model, new = made('ngu', obs_norm=False, neighbours=3, most_lifelong=None), rows()
    model.collected(new)
    found = model.reward(new)
    feature = features(model.network['encoder'], new['next_obs'])
    mean = 0.0
    expected = []
    for row, step in enumerate(new['episode_step']):
        nearest = np.sort(np.square(feature[row - step : row] - feature[row]).sum(1))[:3]
        if len(nearest):
            mean = 0.99 * mean + 0.01 * nearest.mean()
        kernel = 1e-3 / (np.maximum(nearest / max(mean, 1e-12) - 8e-3, 0) + 1e-3)
        similarity = np.sqrt(kernel.sum()) + 1e-3
        expected.append(0 if similarity > 8 else 1 / similarity)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_ngu_pays_more_for_states_that_are_new_to_the_run() -> None:
    plain, model, rnd = made('ngu', most_lifelong=None), made('ngu', most_lifelong=1.5), made('rnd')
    for each in (plain, model, rnd):
        each.collected(rows())
    error = rnd.reward(rows()).astype(float)
    factor = np.clip(1 + (error - error.mean()) / error.std(), 1, 1.5)
    np.testing.assert_allclose(model.reward(rows()), factor * plain.reward(rows()), rtol=1e-4)


def test_actions_that_no_inverse_model_finds_are_named() -> None:
    spec = EnvSpec(SPEC.observation_space, spaces.MultiDiscrete([2, 2]), name='Many')
    (error,) = REWARD_MODEL_REGISTRY.get('icm').check_spec({'type': 'icm'}, spec)
    assert isinstance(error, ConfigError) and 'Many' in str(error)
