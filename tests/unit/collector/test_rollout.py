"""A row's obs, output and timestep belong to one step of one env, in whatever order envs answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import (
    NUMBER,
    STEP,
    ScriptedPolicy,
    ShuffledEnvManager,
    counted_reward,
    counting_manager,
    envs_of,
    frames_of,
)

from rlframe.worker import SampleSerialCollector
from rlframe.worker.collector.rollout import Rollout


def assert_paired(rows: Any) -> None:
    """Fails if the columns of some row are of different steps or envs."""
    obs, next_obs = rows['obs'], rows['next_obs']
    np.testing.assert_array_equal(rows['told'], obs)
    np.testing.assert_array_equal(rows['acted'], obs[..., NUMBER])
    np.testing.assert_array_equal(rows['env_id'], obs[..., NUMBER])
    np.testing.assert_array_equal(next_obs, obs + np.array([0, 0, 1], np.float32))
    np.testing.assert_array_equal(rows['reward'], counted_reward(*np.moveaxis(next_obs, -1, 0)))


@pytest.mark.parametrize('env_num', [2, 6])
def test_every_row_pairs_when_envs_answer_in_random_order(env_num: int) -> None:
    manager = ShuffledEnvManager(counting_manager(env_num, lengths=[3, 1, 4, 2]), env_num)
    collector = SampleSerialCollector({}, manager, ScriptedPolicy().collect_mode)
    for _ in range(10):
        rows = collector.collect(23)
        assert_paired(rows)
    assert collector.envstep == frames_of(manager) == 230 + collector.carried


def test_settings_reach_the_policy_and_a_part_of_the_envs_may_be_stepped() -> None:
    manager, policy = counting_manager(4), ScriptedPolicy()
    manager.reset()
    rollout = Rollout(manager, policy.collect_mode)
    step = rollout.step(np.array([3, 1]), eps=0.5)
    assert policy.given_settings == [{'eps': 0.5}]
    assert step.timestep.env_id.tolist() == [3, 1] and step.obs[:, NUMBER].tolist() == [3, 1]
    assert [env.frames for env in envs_of(manager)] == [0, 1, 0, 1]
    assert manager.obs[:, STEP].tolist() == [0, 1, 0, 1]


def test_abnormal_steps_are_in_no_row_and_their_envs_begin_anew() -> None:
    manager = counting_manager(
        3, lengths=9, info=lambda n, e, s, d: {'abnormal': True} if (n, e, s) == (1, 0, 2) else {'fine': 1}
    )
    policy = ScriptedPolicy()
    manager.reset()
    rollout = Rollout(manager, policy.collect_mode)
    rollout.step()
    step = rollout.step()
    assert step.abnormal.tolist() == [1] and step.timestep.env_id.tolist() == [0, 2]
    assert step.obs[:, NUMBER].tolist() == [0, 2] == step.output['acted'].tolist()
    assert policy.resets == [[1]] and manager.obs[1].tolist() == [1, 1, 0]


def test_the_seed_of_the_next_episode_is_the_caller_s() -> None:
    manager = counting_manager(2, lengths=2)
    manager.reset()
    rollout = Rollout(manager, ScriptedPolicy().collect_mode, lambda ids: [70 + int(i) for i in ids])
    for _ in range(4):
        rollout.step()
    assert [env.seeds for env in envs_of(manager)] == [[None, 70, 70], [None, 71, 71]]


def test_a_loaded_rollout_pairs_the_answers_of_envs_that_were_busy() -> None:
    manager = ShuffledEnvManager(counting_manager(5), 1)
    policy = ScriptedPolicy()
    manager.reset()
    rollout = Rollout(manager, policy.collect_mode)
    while not manager._pending:
        rollout.step()
    other = Rollout(manager, policy.collect_mode)
    other.load_state_dict(rollout.state_dict())
    for _ in range(20):
        step = other.step()
        np.testing.assert_array_equal(step.output['told'], step.obs)
        np.testing.assert_array_equal(step.obs[:, NUMBER], step.timestep.env_id)
