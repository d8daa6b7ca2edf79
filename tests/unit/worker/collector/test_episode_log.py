"""What infos say is logged: their numbers as metrics, and a game of several episodes, as where lost lives end them, as one."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from fakes import FakeBoard, ScriptedPolicy, counted_reward, counting_manager

from rlframe.utils.schema import CheckpointStateError
from rlframe.worker import InteractionSerialEvaluator, SampleSerialCollector
from rlframe.worker.collector.episode_log import EpisodeLog, checked_sums, numbers_of


def test_numbers_of_every_type_are_found_and_nothing_else() -> None:
    info = {
        'int': 3,
        'bool': True,
        'numpy': np.float32(0.5),
        'flag': np.bool_(False),
        'zero-d': np.array(4),
        'nan': math.nan,
        'huge': 10**400,
        'text': '1',
        'array': np.ones(2),
        'none': None,
        'complex': 1j,
        'nested': {'a': 1},
        'TimeLimit.truncated': True,
        'eval_episode_return': 9.0,
        '_drag': True,
        'episode': {'r': 1.0},
    }
    found = {'int': 3.0, 'bool': 1.0, 'numpy': 0.5, 'flag': 0.0, 'zero-d': 4.0}
    assert numbers_of(info) == found
    assert numbers_of(info, {'int', 'text'}) == {'int': 3.0} and numbers_of(info, ()) == {}


@pytest.mark.parametrize(
    ('option', 'tags'),
    [
        ('all', {'place', 'is_success'}),
        ('place,x', {'place'}),
        (None, set()),
    ],
)
def test_means_are_over_the_episodes_since_the_last_record(option: Any, tags: set[str]) -> None:
    board = FakeBoard()
    manager = counting_manager(
        2, lengths=4, info=lambda n, e, s, d: {'is_success': n == 1, 'place': s * (1 + n)}
    )
    cfg = {'collect_print_freq': 5, 'info_metrics': option}
    collector = SampleSerialCollector(cfg, manager, ScriptedPolicy().collect_mode, board)
    for train_iter in range(11):
        collector.collect(8, train_iter=train_iter)
    told = {tag: value for tag, value, _ in board.scalars if tag.startswith('rollout/info/')}
    assert {tag.removeprefix('rollout/info/') for tag in told} == tags
    if 'place' in tags:
        assert told['rollout/info/place'] == 6.0  # of 4 and 8


def test_sums_of_a_worker_that_are_none_are_left_out() -> None:
    assert checked_sums({'a': [1.5, 2], 'b': [1], 'c': ['x', 1], 'd': [math.nan, 1], 'e': [1, 0]}) == {
        'a': [1.5, 2.0]
    }
    assert checked_sums(None) == checked_sums([1]) == {}


def test_a_log_keeps_the_infos_since_its_last_record() -> None:
    log, other = EpisodeLog(1), EpisodeLog(1)
    log.add(np.ones((1, 3)), {'drag': [3.0, 2.0]})
    other.load_state_dict(log.state_dict())
    assert other.summary()['rollout/info/drag'] == 1.5
    bad = {'info_sums': np.ones((2, 2)), 'info_names': ['a']}
    with pytest.raises(CheckpointStateError):
        other.load_state_dict({**EpisodeLog(1).state_dict(), **bad})


def test_an_evaluation_logs_means_of_its_episodes_and_the_chosen_metrics() -> None:
    board = FakeBoard()
    manager = counting_manager(
        2, lengths=4, info=lambda n, e, s, d: {'place': s} | ({'rare': 7} if n else {})
    )
    cfg = {'n_episode': 4, 'metrics': ['median', 'iqm']}
    InteractionSerialEvaluator(cfg, manager, ScriptedPolicy().eval_mode, board).eval()
    assert board.last('eval/info/place') == 4.0 and board.last('eval/info/rare') == 7.0
    assert {'eval/mean_reward', 'eval/median_reward', 'eval/iqm_reward'} <= board.tags()
    assert 'eval/mean_ep_length' not in board.tags()


def game_info(number: int, episode: int, step: int, done: bool) -> dict[str, Any]:
    """Ends a game with its third episode."""
    return {'game_goes_on': True} if done and episode % 3 < 2 else {}


def collector_of_games() -> Any:
    envs = counting_manager(2, lengths=[4], info=game_info)
    return SampleSerialCollector({'mark_episodes': True}, envs, ScriptedPolicy().collect_mode)


def test_a_game_is_logged_as_one_episode_and_rows_are_those_of_its_parts() -> None:
    collecting = collector_of_games()
    rows = collecting.collect(2 * 32)
    games = collecting.take_episodes()
    assert games[:, 1].tolist() == [12.0] * 4 and collecting._log.progress.episodes == 4
    steps = [(episode, step) for episode in range(3) for step in range(1, 5)]
    assert games[0, 0] == sum(counted_reward(0, *each) for each in steps)
    own = rows[rows['env_id'] == 1]
    assert own['terminated'].sum() == 8 and own['episode_step'].tolist() == [0, 1, 2, 3] * 8


def test_a_saved_log_continues_a_game() -> None:
    ours, other = collector_of_games(), collector_of_games()
    ours.collect(2 * 6)
    other.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert ours._log.lengths.tolist() == other._log.lengths.tolist() == [2, 2]
    for each in (ours, other):
        each.collect(2 * 6)
    np.testing.assert_array_equal(ours.take_episodes(), other.take_episodes())
    assert other._log.state_dict().keys() == collector_of_games()._log.state_dict().keys(), (
        'nothing more between games'
    )
