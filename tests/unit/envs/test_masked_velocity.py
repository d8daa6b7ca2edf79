"""Envs without velocities are Gymnasium's own but for what is seen of them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from rlframe.envs.gym_env import GymEnvFactory

CARTPOLE = 'rlframe/CartPoleNoVelocity-v1'
PENDULUM = 'rlframe/PendulumNoVelocity-v1'


@pytest.mark.parametrize(
    ('env_id', 'whole_id', 'seen', 'steps', 'threshold'),
    [(CARTPOLE, 'CartPole-v1', [0, 2], 500, 475), (PENDULUM, 'Pendulum-v1', [0, 1], 200, None)],
)
def test_what_is_seen_is_that_of_the_whole_env(
    env_id: str, whole_id: str, seen: list[int], steps: int, threshold: float | None
) -> None:
    factory = GymEnvFactory({'env_id': env_id})
    part, whole = factory.make(), gymnasium.make(whole_id)
    whole.action_space.seed(0)
    for seed in range(3):
        obs, everything = part.reset(seed=seed)[0], whole.reset(seed=seed)[0]
        done = False
        while not done:
            np.testing.assert_array_equal(obs, everything[seen])
            assert obs.dtype == np.float32 and part.observation_space.contains(obs)
            action = whole.action_space.sample()
            (obs, *said, _), (everything, *expected, _) = part.step(action), whole.step(action)
            assert said == expected
            done = said[1] or said[2]
    spec = factory.spec
    assert (spec.name, spec.max_episode_steps, spec.reward_threshold) == (env_id, steps, threshold)
    assert spec.observation_space.shape == (2,)
