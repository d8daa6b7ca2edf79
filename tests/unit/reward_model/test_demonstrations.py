"""Demonstrations: what is read of recorded data, which are refused, and the newest rows of the agent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from error_texts import raises
from gymnasium import spaces
from policy_toys import OBS, PLAIN, random_rows

from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.demonstrations import demonstrations
from rlframe.reward_model.reward_net import CLIP, Features, RewardNet, tensors

FROM_DATA = ['gail', 'airl', 'pwil', 'red', 'pdeil', 'trex', 'gcl']


def test_actions_are_those_of_a_network() -> None:
    spec = EnvSpec(OBS, spaces.Box(0, 4, (2,), np.float32), name='Toy-v0')
    rows = random_rows(3, actions=None).replace(action=np.array([[0, 4], [2, 1], [4, 4]], np.float32))
    np.testing.assert_allclose(demonstrations(rows, spec)['action'], [[-1, 1], [0, -0.5], [1, 1]])


def test_several_data_are_read_one_after_the_other_with_the_columns_that_all_have(tmp_path: Path) -> None:
    one, other = random_rows(6), random_rows(9, seed=1)
    np.savez(tmp_path / 'one.npz', **one.columns)
    np.savez(tmp_path / 'other.npz', obs=other['obs'], action=other['action'])
    found = demonstrations([str(tmp_path / 'one.npz'), str(tmp_path / 'other.npz')], PLAIN)
    assert {*found.keys()} == {'obs', 'action'}
    np.testing.assert_array_equal(found['obs'], np.concatenate([one['obs'], other['obs']]))


@pytest.mark.parametrize('kind', FROM_DATA)
def test_a_model_without_demonstrations_is_refused(kind: str) -> None:
    with raises(ConfigError):
        REWARD_MODEL_REGISTRY.get(kind)({}, PLAIN, seed=0)


@pytest.mark.parametrize('kind', FROM_DATA)
def test_demonstrations_of_another_env_are_refused(kind: str) -> None:
    other = EnvSpec(spaces.Box(-1, 1, (5,), np.float32), spaces.Discrete(4), name='Other-v0')
    with raises(ConfigError):
        REWARD_MODEL_REGISTRY.get(kind)({'data': random_rows()}, other, seed=0)


def test_numbers_are_read_in_units_of_the_demonstrations_and_classes_one_hot() -> None:
    rows = random_rows(40)
    features = Features(PLAIN, rows)
    found = features.vectors(rows)
    wanted = (rows['obs'] - rows['obs'].mean(0)) / rows['obs'].std(0)
    np.testing.assert_allclose(found[:, :3], wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found[:, 3:], np.eye(4)[rows['action']])
    far = rows.replace(obs=rows['obs'] + 1e6)
    assert features.vectors(far).max() == CLIP


def test_numbers_that_do_not_vary_are_not_blown_up() -> None:
    rows = random_rows(8).replace(obs=np.ones((8, 3), np.float32))
    near = rows.replace(obs=np.full((8, 3), 1.5, np.float32))
    np.testing.assert_allclose(Features(PLAIN, rows, ('obs',)).vectors(near), 0.5)


def test_images_are_read_by_convolutions() -> None:
    spec = EnvSpec(spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6), name='Game-v0')
    draw = np.random.default_rng(0)
    obs = draw.integers(0, 256, (3, 4, 84, 84), np.uint8)
    rows = Batch(obs=obs, action=np.arange(3))
    network = RewardNet(spec, rows, ('obs', 'action'), [8])
    output = network(tensors(rows, ('obs', 'action')))
    assert output.shape == (3,) and torch.isfinite(output).all()
