"""After a restore the same actions give the same steps and the same next episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import CountingEnv

from rlframe.envs import env_state
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.utils.checkpoint import load_checkpoint, save_checkpoint

IDS = ['CartPole-v1', 'MountainCar-v0', 'Pendulum-v1', 'FrozenLake-v1']


def play(env: gymnasium.Env, actions: list[Any]) -> list[Any]:
    """Returns what an env answers, with a reset behind each episode's end."""
    answers = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        answers += [np.array(obs), reward, terminated, truncated]
        if terminated or truncated:
            answers.append(np.array(env.reset()[0]))
    return [*answers, env.action_space.sample()]


def assert_same(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('through_file', [False, True])
@pytest.mark.parametrize('env_id', IDS)
def test_a_restored_env_goes_on_exactly(env_id: str, through_file: bool, tmp_path: Path) -> None:
    factory = GymEnvFactory({'env_id': env_id})
    env, other = factory.make(), factory.make()
    env.reset(seed=3)
    other.reset(seed=9)
    env.action_space.seed(3)
    play(env, [env.action_space.sample() for _ in range(150)])
    state = env_state.capture(env)
    assert state is not None, f'the state of {env_id} cannot be had'
    if through_file:
        state = load_checkpoint(save_checkpoint(tmp_path / 'state', {'env': state}))[0]['env']
    env_state.restore(other, state)
    space = factory.make().action_space
    space.seed(5)
    actions = [space.sample() for _ in range(300)]
    expected = play(env, actions)
    assert_same(play(other, actions), expected)
    env_state.restore(other, state)
    assert_same(play(other, actions), expected)


def test_an_env_that_is_no_plain_data_has_no_state() -> None:
    env = CountingEnv(lengths=lambda episode: 3)
    assert env_state.capture(env) is None


class Simulator(gymnasium.Env):
    """An env with a handle that is no plain data, which knows how to save itself."""

    observation_space = CountingEnv.observation_space
    action_space = CountingEnv.action_space

    def __init__(self) -> None:
        self._handle, self.value = object(), 0

    def get_state(self) -> int:
        return self.value

    def set_state(self, state: int) -> None:
        self.value = state


def test_an_env_s_own_get_state_and_set_state_are_used() -> None:
    env, other = Simulator(), Simulator()
    env.value = 7
    env_state.restore(other, env_state.capture(env))
    assert other.value == 7
