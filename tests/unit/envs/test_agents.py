"""One policy for all agents of a game: each agent is a row of a vector env."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agent_games
import numpy as np
import pytest
from error_texts import raises

from rlframe import config
from rlframe.app.starting import starting_config
from rlframe.envs.agents import Agents
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.envs.worlds import find_world
from rlframe.errors import ConfigError, EnvContractError, EnvError, MissingDependencyError
from rlframe.pipeline import SerialPipeline
from rlframe.policy.parts.random_policy import random_actions


def manager_of(rows: int, **kwargs: Any) -> GymVectorEnvManager:
    factory = GymEnvFactory(dict(env_id=Agents, kwargs=dict(game='agent_games', **kwargs)))
    return GymVectorEnvManager.from_factory(factory, rows, GymVectorEnvManager.resolve_config({}))


def test_rows_are_the_agents_of_each_game_and_their_episodes_end_together() -> None:
    manager = manager_of(6)
    manager.reset(seed=[3] * 6)
    for step in range(13):
        places = manager.obs[:, :4].argmax(1)
        assert (places[:3] == places[0]).all() and manager.obs[:, 4].tolist() == [0, 1, 2] * 2
        action = np.where(np.arange(6) % 3 == 1, places, (places + 1) % 4)
        timestep = manager.step(action, np.arange(6))
        assert timestep.reward.tolist() == [0, 1, 0] * 2
        assert timestep.terminated.tolist() == [step in (5, 11)] * 6
    manager.close()


def test_running_games_continue_from_a_checkpoint() -> None:
    one, other = manager_of(6), manager_of(6)
    one.reset(seed=[3] * 6), other.reset(seed=[4] * 6)
    actions = np.random.default_rng(0).integers(0, 4, (20, 6))
    for action in actions[:8]:
        one.step(action, np.arange(6))
    assert not len(one.restart_lost())
    other.load_state_dict(one.state_dict())
    for action in actions[8:]:
        got, wanted = other.step(action, np.arange(6)), one.step(action, np.arange(6))
        assert np.array_equal(got.obs, wanted.obs) and np.array_equal(got.reward, wanted.reward)
    one.close(), other.close()


def test_an_env_with_tuples_of_spaces_is_a_game_whose_episodes_depend_on_their_seed_alone() -> None:
    factory = GymEnvFactory(dict(env_id=Agents, kwargs=dict(game='agent_games:Pair-v0', length=3)))
    manager = GymVectorEnvManager.from_factory(factory, 4, GymVectorEnvManager.resolve_config({}))
    manager.reset(seed=[3] * 4)
    for step in range(7):
        assert manager.obs.tolist() == [[step % 3 > 0, 0], [step % 3 > 0, 1], [0, 0], [0, 1]]
        timestep = manager.step(np.array([1, 1, 0, 1]), np.arange(4))
        assert timestep.reward.tolist() == [1, 0.5, 0, 0.5]
        assert timestep.terminated.tolist() == [step % 3 == 2] * 4 and not timestep.truncated.any()
    manager.close()
    masked = GymEnvFactory(dict(env_id=Agents, kwargs=dict(game='agent_games:Pair-v0', masked=True)))
    manager = GymVectorEnvManager.from_factory(masked, 2, GymVectorEnvManager.resolve_config({}))
    manager.reset(seed=[3] * 2)
    manager.step(np.array([0, 1]), np.arange(2))
    assert manager.obs['action_mask'].tolist() == [[1, 1], [0, 1]]
    manager.close()
    with raises(EnvError):
        Agents(3, 'gymnasium:CartPole-v1')


def test_smaller_spaces_of_agents_are_padded() -> None:
    factory = GymEnvFactory(dict(env_id=Agents, kwargs=dict(game='agent_games:Different', pad=True)))
    manager = GymVectorEnvManager.from_factory(factory, 6, GymVectorEnvManager.resolve_config({}))
    manager.reset(seed=[3] * 6)
    seen = manager.obs['observation'] if 'observation' in (manager.obs.dtype.names or ()) else manager.obs
    assert seen.shape == (6, 5) and not seen[[1, 4], 3:].any() and seen[2, 4] == 2
    assert manager.obs['action_mask'].sum(1).tolist() == [4, 6, 4] * 2
    manager.close()


KINDS = [
    *({'obs': obs} for obs in agent_games.OBS),
    *({'act': act} for act in agent_games.ACTIONS),
    *({'act': act, 'mask': mask} for act in agent_games.MASKED for mask in ('obs', 'info')),
    {'obs': 'dict', 'act': 'hybrid', 'mask': 'info'},
    {'lives': [(0, 2), (0, 6), (0, 4)]},
    {'lives': [(0, 6), (3, 6), (1, 5)], 'obs': 'tuple', 'mask': 'info'},
    {'lives': [(0, 3), (2, 8), (0, 2)], 'comes_back': True, 'act': 'dict', 'mask': 'obs'},
]


def crowd(rows: int, **kwargs: Any) -> GymVectorEnvManager:
    factory = GymEnvFactory(dict(env_id=Agents, kwargs=dict(game='agent_games:crowd', **kwargs)))
    return GymVectorEnvManager.from_factory(factory, rows, GymVectorEnvManager.resolve_config({}))


def numbers(obs: Any) -> list[int]:
    """Returns which agent saw each of these observations."""
    for name in ('observation', 'x', 'y', '0'):
        obs = obs[name] if name in (obs.dtype.names or ()) else obs
    return np.rint(10 * obs.reshape(len(obs), -1)[:, 0]).astype(int).tolist()


@pytest.mark.parametrize('kwargs', KINDS, ids=str)
def test_each_row_has_the_steps_of_its_agent_and_no_others(kwargs: dict[str, Any]) -> None:
    """Whatever it sees and does, and whenever it comes and goes; a checkpoint in the middle included."""
    one, other = crowd(6, **kwargs), crowd(6, **kwargs)
    lives = kwargs.get('lives', [(0, 6)] * 3)
    lengths: dict[int, list[int]] = {row: [0] for row in range(6)}
    one.reset(seed=[3] * 6), other.reset(seed=[3] * 6)
    draw = random_actions(one.spec, np.random.default_rng(0))
    for step in range(40):
        assert len(one.ready) and numbers(one.obs[one.ready]) == (one.ready % 3).tolist()
        action, acting = draw(one.obs[one.ready], len(one.ready)), one.ready
        got = one.step(action, acting)
        assert np.array_equal(other.step(action, acting).obs, got.obs)
        assert numbers(got.obs) == (got.env_id % 3).tolist()
        for row, done in zip(got.env_id.tolist(), got.done.tolist(), strict=True):
            lengths[row][-1] += 1
            if done:
                lengths[row].append(0)
        if got.done.any():
            one.reset(got.env_id[got.done]), other.reset(got.env_id[got.done])
        if step == 17:
            assert not len(one.restart_lost())
            other = crowd(6, **kwargs)
            other.load_state_dict(one.state_dict())
    for row, found in lengths.items():
        first, last = lives[row % 3]
        turns = [last - first, 1] if kwargs.get('comes_back') and row % 3 == 2 else [last - first]
        assert len(found) > 4 and found[:-1] == (turns * len(found))[: len(found) - 1]
    one.close(), other.close()


@pytest.mark.parametrize(('policy', 'kwargs'), [
    ('ppo', KINDS[-3]), ('dqn', KINDS[-2]), pytest.param('ppo', KINDS[-1], marks=pytest.mark.slow),
    pytest.param('r2d2', KINDS[-3], marks=pytest.mark.slow),
    pytest.param('sac', {'act': 'box', 'obs': 'dict'}, marks=pytest.mark.slow),
])  # fmt: skip
def test_policies_train_on_agents_that_come_and_go(policy: str, kwargs: dict[str, Any], cwd: Path) -> None:
    main, create = starting_config('agents:agent_games:crowd', policy, {'kwargs': kwargs})
    main.policy |= dict(cuda=False)
    main.policy.eval.evaluator.eval_freq, main.max_env_step = 50, 600 if policy == 'ppo' else 300
    if policy != 'ppo':
        main.policy.random_collect_size = 32
    if policy == 'ppo':
        main.policy.collect.n_sample, main.policy.learn.batch_size = 270, 90
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()


def test_what_a_game_says_wrongly_of_its_agents_is_one_error() -> None:
    for fault in ('no reward', 'unknown', 'vanishes'):
        manager = crowd(3, fault=fault)
        manager.reset()
        with raises(EnvContractError):
            for _ in range(2):
                manager.step(np.zeros(3, np.int64), np.arange(3))
    manager = crowd(3, lives=[(0, 1), (0, 1), (2, 3)])
    manager.reset()
    with raises(EnvContractError):
        for _ in range(101):
            manager.step(np.zeros(2, np.int64), np.arange(2))


def test_a_number_of_rows_that_agents_do_not_divide_and_other_games_are_errors() -> None:
    with raises(ConfigError):
        manager_of(8)
    with raises(ConfigError):
        manager_of(1).reset()
    with raises(EnvError):
        GymEnvFactory(dict(env_id=Agents, wrappers=['FlattenObservation'])).create_vector(3)
    for game, error in (
        ('no_such_game', MissingDependencyError),
        ('agent_games:Nobody', EnvError),
        ('games:Nim', EnvError),
    ):
        with raises(error):
            Agents(3, game)


@pytest.mark.slow
def test_training_by_an_id_chooses_numbers_that_fit_and_learns(cwd: Path) -> None:
    assert find_world('agents:agent_games').manager == 'gym_vector'
    main, create = starting_config('agents:agent_games', 'ppo')
    assert main.env.collector_env_num == 9 and main.policy.collect.n_sample % 9 == 0
    assert main.exp_name == 'agent_games_ppo' and main.env.kwargs == {'game': 'agent_games'}
    main.policy |= dict(cuda=False)
    main.policy.collect.n_sample, main.policy.learn.batch_size = 270, 90
    main.policy.eval.evaluator.eval_freq, main.max_env_step = 120, 9000
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    assert pipeline.evaluator.best >= 5.5, 'of 6; random agents have 1.5'
