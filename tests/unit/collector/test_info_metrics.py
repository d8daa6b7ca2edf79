"""Numbers in the last info of an episode become metrics, in training and in evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import FakeBoard, ScriptedPolicy, config_pair, counting_manager
from runs import records

from rlframe import config
from rlframe.pipeline import SerialPipeline
from rlframe.utils.schema import CheckpointStateError
from rlframe.worker import SampleSerialCollector
from rlframe.worker.collector.episode_log import EpisodeLog, checked_sums, numbers_of


class Flying(gymnasium.Env[Any, Any]):
    """Its third step is the last, and its info reports numbers of every type, some of them in every second episode only."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.episode += 1
        return np.zeros(2, np.float32), {'drag': 99}

    def step(self, action: Any) -> Any:
        self.steps += 1
        info: dict[str, Any] = {'drag': np.float32(self.steps), 'lift': self.steps == 3}
        if self.episode % 2 == 0:
            info['rare'] = np.array(7)
        return np.zeros(2, np.float32), 1.0, self.steps == 3, False, info


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


def test_a_log_without_infos_loads_and_a_wrong_one_is_refused() -> None:
    log, other = EpisodeLog(1), EpisodeLog(1)
    log.add(np.ones((1, 3)), {'drag': [3.0, 2.0]})
    other.load_state_dict(log.state_dict())
    assert other.summary()['rollout/info/drag'] == 1.5
    state = EpisodeLog(1).state_dict()
    assert not {'info_names', 'info_sums'} & state.keys(), 'as older versions wrote it'
    other.load_state_dict(state)
    for bad in (
        {'info_sums': np.ones((2, 2)), 'info_names': ['a']},
        {'info_sums': np.ones((1, 2)), 'info_names': [1]},
    ):
        with pytest.raises(CheckpointStateError):
            other.load_state_dict({**state, **bad})


def test_info_is_logged_in_training_and_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sections: dict[str, Any] = dict(env={'env_id': 'test_info_metrics:Flying'}, loggers=[])
    sections |= dict(manager='gym_vector', manager_={'mode': 'sync'})
    pair = config_pair(evaluator={'metrics': ['median', 'iqm']}, **sections)
    with SerialPipeline(config.compile_config(*pair, seed=1)) as pipeline:
        for _ in range(7):
            pipeline.step()
    straight = records(pipeline.folder)
    told = {name: value for record in straight for name, value in record.items() if '/info/' in name}
    names = {f'{start}/info/{name}' for start in ('rollout', 'eval') for name in ('drag', 'lift', 'rare')}
    assert names - {'eval/info/rare'} <= told.keys() <= names
    assert told['rollout/info/drag'] == told['eval/info/drag'] == 3.0 and told['rollout/info/rare'] == 7.0
    assert told['rollout/info/lift'] == 1.0
    first = straight[0]
    assert first['eval/median_reward'] == first['eval/iqm_reward'] == first['eval/mean_reward'] == 3.0
    assert 'eval/mean_ep_length' not in first
