"""Every form of ``env_id`` makes its env, and what cannot be made says what to write instead."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from error_texts import raises
from fakes import CountingEnv

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError, EnvError


def make(env_id: Any, **more: Any) -> gymnasium.Env:
    return GymEnvFactory({'env_id': env_id, **more}).make()


def test_ids_classes_factories_and_modules_are_understood() -> None:
    assert make('CartPole-v1').spec.id == 'CartPole-v1'
    assert make('gymnasium.envs:CartPole-v1').spec.id == 'CartPole-v1'
    assert isinstance(make('fakes:CountingEnv', kwargs={'number': 4}), CountingEnv)
    assert make(CountingEnv, kwargs={'number': 4}).number == 4
    assert make(lambda number: CountingEnv(number + 1), kwargs={'number': 4}).number == 5
    assert make('FrozenLake-v1', kwargs={'map_name': '8x8'}).observation_space.n == 64


def test_an_unknown_id_names_the_nearest_one() -> None:
    with raises(EnvError):
        make('CartPol-v1')
    with raises(EnvError):
        make('CartPole-v1', kwargs={'no_such_option': 1})
    with raises(EnvError):
        make('no_such_module:Env')
    with raises(EnvError):
        make(lambda: 3)
    with raises(ConfigError):
        make(3)


def test_namespace_of_an_id_is_imported() -> None:
    pytest.importorskip('minatar')
    for _ in range(2):
        assert make('MinAtar/Breakout-v1').observation_space.shape == (10, 10, 4)


def test_wrappers_are_put_on_innermost_first() -> None:
    env = make(
        'CartPole-v1',
        wrappers=[
            'FlattenObservation',
            dict(type='gymnasium.wrappers:TimeLimit', max_episode_steps=7),
            gymnasium.wrappers.RecordEpisodeStatistics,
        ],
    )
    names = [type(env).__name__, type(env.env).__name__, type(env.env.env).__name__]
    assert names == ['RecordEpisodeStatistics', 'TimeLimit', 'FlattenObservation']
    with raises(ConfigError):
        make('CartPole-v1', wrappers=['TimeLimits'])
    with raises(ConfigError):
        make('CartPole-v1', wrappers=[3])
