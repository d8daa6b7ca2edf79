"""A game of several episodes, as where lost lives end them, is logged as one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from fakes import ScriptedPolicy, counted_reward, counting_manager

from rlframe.worker import SampleSerialCollector


def info(number: int, episode: int, step: int, done: bool) -> dict[str, Any]:
    """Ends a game with its third episode."""
    return {'game_goes_on': True} if done and episode % 3 < 2 else {}


def collector() -> Any:
    envs = counting_manager(2, lengths=[4], info=info)
    return SampleSerialCollector({'mark_episodes': True}, envs, ScriptedPolicy().collect_mode)


def test_a_game_is_logged_as_one_episode_and_rows_are_those_of_its_parts() -> None:
    collecting = collector()
    rows = collecting.collect(2 * 32)
    games = collecting.take_episodes()
    assert games[:, 1].tolist() == [12.0] * 4 and collecting._log.progress.episodes == 4
    steps = [(episode, step) for episode in range(3) for step in range(1, 5)]
    assert games[0, 0] == sum(counted_reward(0, *each) for each in steps)
    own = rows[rows['env_id'] == 1]
    assert own['terminated'].sum() == 8 and own['episode_step'].tolist() == [0, 1, 2, 3] * 8


def test_a_saved_log_continues_a_game() -> None:
    ours, other = collector(), collector()
    ours.collect(2 * 6)
    other.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert ours._log.lengths.tolist() == other._log.lengths.tolist() == [2, 2]
    for each in (ours, other):
        each.collect(2 * 6)
    np.testing.assert_array_equal(ours.take_episodes(), other.take_episodes())
    assert other._log.state_dict().keys() == collector()._log.state_dict().keys(), (
        'nothing more between games'
    )
