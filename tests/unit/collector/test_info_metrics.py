"""Numbers in the last info of an episode become metrics, in training and in evaluation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fakes import FakeBoard, ScriptedPolicy, counting_manager

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
