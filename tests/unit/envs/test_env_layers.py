"""The layers of an env: what it keeps is not taken for one, and none is shared by two envs or learns while it is used."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from agent_games import Meeting
from error_texts import raises
from gymnasium.wrappers import vector
from zoo import Toy

from rlframe.envs.agents import Agents
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.schedule import check_scheduled
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import ConfigError, EnvError
from rlframe.registry import ENV_REGISTRY


class OldSimulator:
    """An env of the interface before Gymnasium's."""

    class Space:
        n = 3

    observation_space = action_space = Space()


KEPT: dict[str, Callable[[Any], Any]] = {
    'old simulator': lambda env: OldSimulator(),
    'class': lambda env: OldSimulator,
    'name': lambda env: 'CartPole-v1',
    'dict': lambda env: {'env': 1},
    'nothing': lambda env: None,
    'itself': lambda env: env,
    'env': lambda env: gymnasium.make('CartPole-v1'),
}
"""What an env may keep as ``self.env``."""


class Keeper(Toy):
    """Keeps something as ``self.env``, and draws its observations from its space."""

    length = 3

    def __init__(self, what: str) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.what = what

    def begin(self, seed: int | None) -> None:
        self.env = KEPT[self.what](self)

    def obs(self) -> Any:
        return self.observation_space.sample()


@pytest.mark.parametrize('what', KEPT)
def test_an_env_may_keep_anything_as_its_env(what: str) -> None:
    one, other = (BaseEnvManager([lambda: Keeper(what)] * 2) for _ in range(2))
    for seed in (1, 2, 3):
        for manager in (one, other):
            manager.reset(seed=[seed, seed])
        assert np.array_equal(one.obs, other.obs) and np.array_equal(one.obs[0], one.obs[1])
        one.step(np.zeros(2, np.int64), np.arange(2))
        other.step(np.zeros(2, np.int64), np.arange(2))
    one.restart_lost()
    other.load_state_dict(one.state_dict())
    assert np.array_equal(one.obs, other.obs)
    with raises(ConfigError):
        check_scheduled(one.envs[0], {'whatt': dict(type='linear', start=1, end=3, decay=9)})
    one.close(), other.close()


class SameMembers(gymnasium.vector.SyncVectorEnv):
    """A vector of one env."""

    def __init__(self, num_envs: int) -> None:
        super().__init__([lambda: ONE] * num_envs)


class LearningMembers(gymnasium.vector.SyncVectorEnv):
    """A vector of envs that learn."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(
            [lambda: gymnasium.wrappers.NormalizeReward(gymnasium.make('CartPole-v1'))] * num_envs
        )


class LearningVector(vector.NormalizeObservation):
    """A vector that learns."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(gymnasium.make_vec('CartPole-v1', num_envs))


def same_game(**kwargs: Any) -> Any:
    return GAME


ONE: Any = gymnasium.make('CartPole-v1')
GAME: Any = Meeting()
SHARING: dict[str, dict[str, Any]] = {
    'cached': dict(env_id=functools.cache(lambda: gymnasium.make('CartPole-v1'))),
    'same': dict(env_id=lambda: ONE),
    'wrapped anew': dict(env_id=lambda: gymnasium.wrappers.TimeLimit(ONE, 50)),
    'wrapped by an option': dict(env_id=lambda: ONE, wrappers=['RecordEpisodeStatistics']),
    'within': dict(env_id=lambda: gymnasium.Wrapper(gymnasium.wrappers.TimeLimit(ONE.unwrapped, 50))),
    'members': dict(env_id=SameMembers),
    'agents': dict(env_id=Agents, kwargs=dict(game=f'{__name__}:same_game')),
    'players': dict(type='pettingzoo', env_id=lambda: GAME),
}
"""Sections of factories that give something twice."""


@pytest.mark.parametrize('name', SHARING)
def test_an_env_that_is_given_twice_is_refused(name: str) -> None:
    """To one manager, to those of training and evaluation, and by functions alone."""
    section = SHARING[name]
    kind = GymVectorEnvManager if name in ('members', 'agents') else BaseEnvManager
    width = 3 if name == 'agents' else 1
    factory = ENV_REGISTRY.build(
        {'type': 'gym', **section}, {k: v for k, v in section.items() if k != 'type'}
    )
    with raises(EnvError):
        one = kind.from_factory(factory, width)
        one.reset(), kind.from_factory(factory.for_training(), width)
    with raises(EnvError):
        kind.from_factory(factory, 2 * width)


def test_functions_that_give_an_env_twice_are_refused_and_new_envs_are_not() -> None:
    with raises(EnvError):
        BaseEnvManager([lambda: ONE] * 2)
    factory = GymEnvFactory(dict(env_id='CartPole-v1', wrappers=['RecordEpisodeStatistics']))
    copies = [factory, pickle.loads(pickle.dumps(factory)), copy.deepcopy(factory), factory.for_training()]
    for manager in [BaseEnvManager.from_factory(each, 2) for each in copies]:
        manager.close()
        manager.reset()
        manager.close()


class Learned(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
    """A wrapper of one's own that is one of Gymnasium's."""


LEARNING: dict[str, Any] = {
    'NormalizeObservation': dict(wrappers=['NormalizeObservation']),
    'NormalizeReward': dict(wrappers=['NormalizeReward']),
    'Learned': dict(wrappers=[Learned]),
    'beneath others': dict(wrappers=['NormalizeReward', 'RecordEpisodeStatistics', 'TimeAwareObservation']),
    'vector': dict(env_id=LearningVector),
    'members': dict(env_id=LearningMembers),
}
"""Options of envs whose wrappers learn."""


@pytest.mark.parametrize('name', LEARNING)
def test_a_wrapper_that_learns_is_refused_with_the_option_that_does_the_same(name: str) -> None:
    factory = GymEnvFactory({'env_id': 'CartPole-v1', **LEARNING[name]})
    with raises(EnvError):
        factory.create_vector(2) or factory.create()


def test_a_wrapper_whose_statistics_stay_is_taken() -> None:
    def frozen() -> Any:
        env: Any = gymnasium.wrappers.NormalizeObservation(gymnasium.make('CartPole-v1'))
        env.update_running_mean = False
        return env

    GymEnvFactory(dict(env_id=frozen)).create().close()
