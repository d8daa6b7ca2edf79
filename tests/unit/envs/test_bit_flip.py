"""BitFlip flips one bit in each step, and ends where all bits are those of the goal, or after as many steps as bits."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlframe.envs.bit_flip import BitFlip
from rlframe.envs.gym_env import GymEnvFactory


def test_it_has_the_api_of_gymnasium() -> None:
    check_env(BitFlip(5), skip_render_check=True)


def test_flipping_the_bits_that_differ_reaches_the_goal() -> None:
    env = BitFlip(20)
    obs, _ = env.reset(seed=1)
    wrong = np.flatnonzero(obs['observation'] != obs['desired_goal'])
    assert len(wrong)
    results = [env.step(bit) for bit in wrong]
    assert [result[1:3] for result in results] == [(0.0, False)] * (len(wrong) - 1) + [(1.0, True)]
    obs, _, _, truncated, info = results[-1]
    np.testing.assert_array_equal(obs['achieved_goal'], obs['desired_goal'])
    assert info == {'is_success': True} and not truncated


def test_step_n_ends_an_episode_that_has_not_reached_its_goal() -> None:
    env = BitFlip(4)
    while True:
        obs, _ = env.reset()
        if (
            obs['observation'][0] == obs['desired_goal'][0]
            and (obs['observation'] != obs['desired_goal']).sum() > 1
        ):
            break
    results = [env.step(0) for _ in range(4)]
    assert [result[2:4] for result in results] == [(False, False)] * 3 + [(False, True)]
    assert results[-1][4] == {'is_success': False}


def test_rows_of_goals_are_judged_at_once_as_each_by_itself() -> None:
    goals = GymEnvFactory({'env_id': 'rlframe/BitFlip-v0', 'kwargs': {'n_bits': 3}}).goals()
    achieved = np.array([[0, 0, 1], [1, 1, 1], [0, 1, 0]], np.float32)
    desired = np.array([[0, 0, 1], [1, 1, 0], [0, 1, 0]], np.float32)
    np.testing.assert_array_equal(goals.reward(achieved, desired), [1, 0, 1])
    np.testing.assert_array_equal(goals.terminated(achieved, desired), [True, False, True])
    np.testing.assert_array_equal(goals.reward(achieved[:1], desired[:1]), [1])


def test_there_is_at_least_one_bit() -> None:
    with pytest.raises(ValueError, match='n_bits must be >= 1'):
        BitFlip(0)
