"""CartPole without velocities is CartPole but for what is seen of it."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.state.env_state import EnvState

ENV_ID = 'rlframe/CartPoleNoVelocity-v1'


def test_position_and_angle_are_those_of_cartpole() -> None:
    factory = GymEnvFactory({'env_id': ENV_ID})
    part, whole = factory.make(), gymnasium.make('CartPole-v1')
    rng = np.random.default_rng(0)
    for seed in range(5):
        seen, everything = part.reset(seed=seed)[0], whole.reset(seed=seed)[0]
        done = False
        while not done:
            np.testing.assert_array_equal(seen, everything[[0, 2]])
            assert seen.dtype == np.float32 and part.observation_space.contains(seen)
            action = int(rng.integers(2))
            (seen, *said, _), (everything, *expected, _) = part.step(action), whole.step(action)
            assert said == expected
            done = said[1] or said[2]
    spec = factory.spec
    assert (spec.name, spec.max_episode_steps, spec.reward_threshold) == (ENV_ID, 500, 475)
    assert spec.observation_space.shape == (2,)


def test_its_state_can_be_put_back() -> None:
    env, other = (GymEnvFactory({'env_id': ENV_ID}).make() for _ in range(2))
    own, others = EnvState(env), EnvState(other)
    env.reset(seed=1), other.reset(seed=2)
    for _ in range(4):
        env.step(1)
    state = own.capture()
    assert isinstance(state, dict)
    others.restore(state)
    for action in (0, 1, 1):
        np.testing.assert_array_equal(env.step(action)[0], other.step(action)[0])


def test_the_id_is_known_without_an_import_and_to_gymnasium_with_one() -> None:
    program = (
        "from rlframe.envs.gym_env import GymEnvFactory, gym; assert not [i for i in gym.registry if 'rlframe' in i];"
        f" GymEnvFactory({{'env_id': {ENV_ID!r}}}).make();"
        f" gym.make('rlframe.envs.partial_cartpole:{ENV_ID}')"
    )
    subprocess.run([sys.executable, '-c', program], check=True)
