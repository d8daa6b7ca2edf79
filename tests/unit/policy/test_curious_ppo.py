"""Curious PPO adds the advantages of two critics, of which the second one looks beyond the ends of episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlframe.data import Batch
from rlframe.data.timestep import EnvSpec
from rlframe.policy import create_policy

SPEC = EnvSpec(spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(4), name='Toy')
GAMMA, LAMBDA = 0.9, 0.8


@pytest.mark.parametrize('bonus_ends', [False, True])
def test_bonuses_are_valued_by_a_critic_of_their_own(bonus_ends: bool) -> None:
    collect = dict(bonus_discount_factor=GAMMA, gae_lambda=LAMBDA, bonus_ends=bonus_ends)
    policy: Any = create_policy({'type': 'curious_ppo', 'cuda': False, 'collect': collect}, SPEC, seed=0)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(6, 3)).astype(np.float32)
    next_obs = rng.normal(size=(6, 3)).astype(np.float32)
    bonus, advantage, return_ = rng.normal(size=(3, 6)).astype(np.float32)
    marks = dict(env_id=np.array([0, 0, 0, 1, 1, 1]), episode_step=np.array([4, 5, 0, 0, 1, 2]))
    data = Batch(obs=obs, next_obs=next_obs, bonus=bonus, advantage=advantage, return_=return_, **marks)
    found = policy.advantages(data)

    with torch.no_grad():
        value, behind = (
            policy.model.bonus_critic(torch.from_numpy(each))[:, 0].numpy() for each in (obs, next_obs)
        )
    ends = {2, 5} | ({1} if bonus_ends else set())
    expected = np.zeros(6)
    following = 0.0
    for row in range(5, -1, -1):
        is_end = row in ends
        after = behind[row] if is_end else value[row + 1]
        following = bonus[row] + GAMMA * after - value[row] + (0.0 if is_end else GAMMA * LAMBDA * following)
        expected[row] = following
    np.testing.assert_allclose(found['advantage'], advantage + expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found['bonus_return'], expected + value, rtol=1e-5, atol=1e-6)
