"""Moving has the rules of Moving-v0 of gym-hybrid: what each choice does, what it earns, and what ends an episode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.moving import ACCELERATE, BRAKE, TURN, Moving


def placed(place: tuple[float, float], centre: tuple[float, float], angle: float = 0.0) -> Moving:
    env = Moving()
    env.reset(seed=0)
    env._place, env._centre, env._angle = np.array(place), np.array(centre), angle
    return env


def done(env: Moving, choice: int, *parameters: float) -> tuple[Any, float, bool, Any]:
    obs, reward, terminated, truncated, info = env.step((choice, np.array(parameters or (0, 0), np.float32)))
    assert not truncated and env.observation_space.contains(obs)
    return obs, reward, terminated, info


def test_it_accelerates_turns_and_brakes_and_earns_what_it_comes_nearer() -> None:
    env = placed((0, 0), (0.5, 0))
    obs, reward, ended, _ = done(env, ACCELERATE, 0.8, -1)
    np.testing.assert_allclose(obs[:5], [0.005 * 0.4, 0, 0.4, 1, 0], atol=1e-6)
    np.testing.assert_allclose([reward, obs[7], obs[9]], [0.002 - 0.001, 0.498, 1 / 200], atol=1e-6)
    obs, reward, *_ = done(env, TURN, 0.8, -1)  # to the right, by a quarter
    np.testing.assert_allclose(obs[:5], [0.002, -0.002, 0.4, 0, -1], atol=1e-6)
    np.testing.assert_allclose(reward, 0.498 - math.hypot(0.498, 0.002) - 0.001, atol=1e-6)
    speeds = [done(env, BRAKE)[0][2] for _ in range(5)]
    np.testing.assert_allclose(speeds, [0.3, 0.2, 0.1, 0, 0], atol=1e-6)
    assert not ended


def test_only_who_stops_inside_has_succeeded() -> None:
    env = placed((0.45, 0), (0.5, 0))
    assert done(env, ACCELERATE, 0.1, 0)[2:] == (False, {})  # inside, and moving
    obs, reward, ended, info = done(env, BRAKE)
    assert ended and info == {'is_success': True} and obs[8] == 1
    np.testing.assert_allclose(reward, 1 - 0.001, atol=1e-6)


@pytest.mark.parametrize('ending', ['left', 'late'])
def test_leaving_the_square_or_step_201_costs_1(ending: str) -> None:
    env = placed((0.999, 0) if ending == 'left' else (0, 0), (0.5, 0))
    for _ in range(0 if ending == 'left' else 200):
        assert not done(env, TURN, 0, 1)[2]
    _, reward, ended, info = done(env, ACCELERATE, 1, 0)
    assert (reward, ended, info) == (-1.0, True, {'is_success': False})


def test_an_episode_of_its_id_depends_on_the_seed_alone() -> None:
    factory = GymEnvFactory({'env_id': 'rlframe/Moving-v0'})
    first, second = (factory.make().reset(seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[5:7]).max() <= 0.9 and factory.spec.name == 'rlframe/Moving-v0'
