"""IBC: its loss by hand, and that the search finds the least energy without drawing."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from policy_toys import OBS, random_rows, small

from rlframe.data import EnvSpec

SPEC = EnvSpec(OBS, gymnasium.spaces.Box(-2, 2, (2,), np.float32), name='Toy-v0')


def made(**learn: Any) -> Any:
    return small('ibc', SPEC, learn=learn)


def test_the_loss_is_the_likelihood_of_the_recorded_action_among_drawn_ones() -> None:
    policy = made(negatives=5)
    data = random_rows(6, actions=None)
    rows = policy.columns(data)
    with torch.no_grad():
        wanted = 0.0
        for i in range(6):
            actions = np.concatenate([data['action'][i : i + 1] / 2, rows['drawn'][i].numpy()])
            obs = rows['obs'][i].expand(6, -1)
            energy = policy.model.critic(obs, torch.from_numpy(actions))[0].numpy().astype(float)
            wanted += (np.log(np.exp(-energy).sum()) + energy[0]) / 6
    assert policy.update.loss(rows).value.item() == pytest.approx(wanted, rel=1e-5)


class Valley(torch.nn.Module):
    """Energies of a valley around a place that the observation says."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Identity()

    def values_of_several(self, obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return 200 * (actions - obs[:, None, :2]).square().sum(2)[None]


def test_the_search_finds_the_least_energy() -> None:
    policy = made()
    policy.model.critic = Valley()
    obs = np.random.default_rng(0).uniform(-0.9, 0.9, (20, 3)).astype(np.float32)
    acted = policy.eval_mode.forward(obs, np.arange(20))['action'] / 2
    assert np.abs(acted - obs[:, :2]).max() < 0.12 and np.abs(acted - obs[:, :2]).mean() < 0.04
    np.testing.assert_array_equal(acted, policy.eval_mode.forward(obs, np.arange(20))['action'] / 2)


def test_it_learns_actions_of_two_kinds_and_not_their_mean() -> None:
    policy = made(learning_rate=1e-2)
    rng = np.random.default_rng(0)
    obs = np.zeros((256, 3), np.float32)
    action = np.where(rng.random((256, 1)) < 0.5, -1.5, 1.5).astype(np.float32).repeat(2, 1)
    data = random_rows(256, actions=None).replace(obs=obs, action=action)
    for _ in range(200):
        policy.learn_mode.forward(data)
    acted = policy.eval_mode.forward(obs[:1], np.arange(1))['action'][0]
    assert np.abs(acted).min() > 0.75 and acted[0] * acted[1] > 0, 'their mean is 0'
