"""Runs with hindsight replay resume bit for bit, learn alike wherever steps are collected, and end at a success rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from marks import slow_with
from parallel_parts import compiled
from runs import differences, end_of

from rlframe import config
from rlframe.app.starting import starting_config
from rlframe.data.timestep import EnvSpec
from rlframe.envs.goals import EnvGoals
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError, EnvContractError, IncompatibleError
from rlframe.pipeline import SerialPipeline
from rlframe.worker.replay_buffer.hindsight import check_goals

SMALL = (
    'env.kwargs.n_bits=4',
    'policy.random_collect_size=60',
    'evaluator.eval_freq=40',
    'env.stop_success=None',
)
CASES = {
    'one step': (),
    'three steps': ('policy.nstep=3',),
    'priorities': ('replay_buffer.type=advanced', 'policy.priority=true', 'policy.priority_IS_weight=true'),
    'whole episodes': (
        *('collector.type=episode', 'policy.collect.n_sample=None', 'policy.collect.n_episode=3'),
        *('policy.collect.collector.mark_episodes=false', 'policy.nstep=2'),
    ),
    'processes': ('collector.backend=process',),
}


def trained(folder: Path, updates: int, *words: str, resume: Path | None = None) -> dict[str, Any]:
    """Trains a DQN on 4 bits; returns the state of its policy and its replay buffer."""
    cfg = compiled('bitflip_dqn', *SMALL, *words, f'max_train_iter={updates}')
    return end_of(cfg, folder, 'policy', 'replay_buffer', 'evaluator', resume=resume)


@pytest.mark.parametrize('case', slow_with('processes', CASES))
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(case: str, tmp_path: Path) -> None:
    straight = trained(tmp_path / 'straight', 90, *CASES[case])
    trained(tmp_path / 'half', 50, *CASES[case])
    assert (
        differences(straight, trained(tmp_path / 'whole', 90, *CASES[case], resume=tmp_path / 'half')) == []
    )


@pytest.mark.slow
def test_steps_of_a_process_are_those_collected_here(tmp_path: Path) -> None:
    here, there = (trained(tmp_path / case, 60, *CASES[case]) for case in ('one step', 'processes'))
    assert differences(here, there) == []


class Reach(gymnasium.Env[Any, Any]):
    """A goal on a line; rewards also depend on the effort if ``effort`` is set."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, goals: int = 1, effort: float = 0.0, rewards: bool = True) -> None:
        one, many = (spaces.Box(-9, 9, (n,), np.float32) for n in (1, goals))
        self.observation_space: Any = spaces.Dict(observation=one, achieved_goal=one, desired_goal=many)
        self.goals, self.effort = goals, effort
        if rewards:
            self.compute_reward = self._reward

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = np.zeros(1, np.float32), 0
        self.goal = self.np_random.uniform(-2, 2, self.goals).astype(np.float32)
        return self._obs(), {}

    def _obs(self) -> Any:
        return {'observation': self.place, 'achieved_goal': self.place, 'desired_goal': self.goal}

    def _reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> float:
        return 0.0 if abs(achieved_goal - desired_goal).max() < 0.2 else -1.0

    def step(self, action: Any) -> Any:
        self.time += 1
        self.place = self.place + action
        reward = self._reward(self.place, self.goal, {}) - self.effort * (self.time > 5)
        return self._obs(), reward, False, self.time == 10, {}


def reaching(*overrides: str, policy: str = 'sac', **kwargs: Any) -> Any:
    main, create = starting_config(Reach, policy, {'kwargs': kwargs})
    small = (
        'env.collector_env_num=2',
        'policy.learn.batch_size=8',
        'policy.random_collect_size=40',
        'max_train_iter=20',
    )
    turn_on = (
        'policy.other.replay_buffer.hindsight.strategy=future',
        'policy.collect.collector.mark_episodes=true',
    )
    return config.compile_config(main, create, overrides=[*small, *turn_on, *overrides])


@pytest.mark.parametrize('policy', ['sac', 'td3', 'ddpg', 'tqc', 'crossq'])
def test_actor_critics_learn_from_goals_that_are_rewarded_one_by_one(policy: str, tmp_path: Path) -> None:
    with SerialPipeline(reaching(policy=policy), tmp_path) as pipeline:
        pipeline.run()
        assert pipeline.progress.train_iter >= 20
        rows: Any = pipeline.replay_buffer.sample(20, 0)
        goals = rows['next_obs']['achieved_goal'], rows['next_obs']['desired_goal']
        np.testing.assert_array_equal(rows['reward'], np.where(abs(goals[0] - goals[1])[:, 0] < 0.2, 0, -1))


class OneByOne(Reach):
    """Rewards single goals of two numbers, which have to be contiguous."""

    def _reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> float:
        return -abs(achieved_goal.view(np.complex64) - desired_goal.view(np.complex64)).item()


def test_goals_that_are_rewarded_one_by_one_are_contiguous() -> None:
    goals = EnvGoals(GymEnvFactory({'env_id': OneByOne}))
    rows = np.asfortranarray(np.array([[0, 0], [3, 4], [6, 8]], np.float32))
    np.testing.assert_array_equal(goals.reward(rows, np.zeros_like(rows)), [0, -5, -10])


@pytest.mark.parametrize(
    'kwargs, message',
    [
        ({'goals': 2}, r'the shape \(1,\), desired ones \(2,\)'),
        ({'rewards': False}, 'Reach has no compute_reward'),
    ],
)
def test_envs_that_cannot_judge_other_goals_are_named_before_training(
    kwargs: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(IncompatibleError, match=message):
        SerialPipeline(reaching(**kwargs), tmp_path)


def test_a_reward_of_more_than_goals_ends_the_run_with_the_first_difference(tmp_path: Path) -> None:
    with (
        SerialPipeline(reaching(effort=0.5), tmp_path) as pipeline,
        pytest.raises(Exception, match='in 20 of 40 steps compute_reward returns something else'),
    ):
        pipeline.run()


def test_hindsight_needs_goals_and_whole_episodes() -> None:
    section = {'hindsight': {'strategy': 'final'}, 'replay_buffer_size': 100}
    spec = GymEnvFactory({'env_id': 'CartPole-v1'}).spec
    with pytest.raises(IncompatibleError, match='needs an env with goals'):
        check_goals(section, spec)
    known = EnvSpec(Reach().observation_space, Reach.action_space, max_episode_steps=101)
    with pytest.raises(ConfigError, match='up to 101 env steps'):
        check_goals(section, known)
    check_goals({**section, 'replay_buffer_size': 101}, known)
    with pytest.raises(ConfigError, match='at least 202'):
        check_goals({**section, 'replay_buffer_size': 201, 'num_shards': 2}, known)


@pytest.mark.parametrize(
    'words, where',
    [
        (['policy.collect.collector.mark_episodes=false'], 'mark_episodes'),
        (['env.frame_stack=2'], 'env.frame_stack'),
        (['replay_buffer.type=sequence'], 'hindsight.strategy'),
    ],
)
def test_what_hindsight_cannot_have_is_one_error(words: list[str], where: str) -> None:
    with pytest.raises(ConfigError, match=where) as caught:
        compiled('bitflip_dqn', *words)
    assert caught.value.where.endswith(where)


def test_policies_whose_advantages_are_of_old_goals_are_refused() -> None:
    with pytest.raises(ConfigError, match="advantages of 'ppo_offpolicy'"):
        reaching(policy='ppo_offpolicy')


def test_a_run_ends_at_a_success_rate(tmp_path: Path) -> None:
    words = ('env.kwargs.n_bits=2', 'evaluator.eval_freq=20', 'env.stop_success=0.6', 'max_train_iter=3000')
    with SerialPipeline(compiled('bitflip_dqn', *words), tmp_path) as pipeline:
        pipeline.run()
        assert pipeline.solved and pipeline.progress.train_iter < 3000
        assert pipeline.evaluator.goal == 'success 0.6'


def test_a_success_rate_that_no_env_tells_is_an_error(tmp_path: Path) -> None:
    with (
        SerialPipeline(reaching('env.stop_success=0.5'), tmp_path) as pipeline,
        pytest.raises(EnvContractError, match='do not tell the success'),
    ):
        pipeline.run()


def test_an_env_that_rewards_goals_gets_hindsight_by_itself() -> None:
    main, create = starting_config(Reach)
    assert create.policy.type == 'sac' and main.policy.other.replay_buffer.hindsight.strategy == 'future'
    main, create = starting_config('rlframe/BitFlip-v0')
    assert create.policy.type == 'dqn' and main.policy.collect.collector.mark_episodes
    main, create = starting_config(Reach, options={'kwargs': {'rewards': False}})
    assert create.policy.type == 'ppo'
    assert 'replay_buffer' not in starting_config(Reach, 'ppo')[1]
