"""An evaluation ends, however long episodes are, and says what it cut."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fakes import (
    CountingEnv,
    FakeBoard,
    ScriptedPolicy,
    ShuffledEnvManager,
    counting_manager,
    envs_of,
    vector_manager,
)
from games import counting_players

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.worker import BattleInteractionSerialEvaluator, InteractionSerialEvaluator

ENDLESS = 10**9


def make(manager: Any, board: Any = None, **cfg: Any) -> Any:
    return InteractionSerialEvaluator({'n_episode': 4} | cfg, manager, ScriptedPolicy().eval_mode, board)


def one(n: int, e: int, s: int) -> float:
    return 1.0


def vector(mode: str, lengths: int = ENDLESS) -> Any:
    make_one = partial(CountingEnv, lengths=lengths, reward=one)
    return vector_manager([make_one] * 2, mode)


MANAGERS: dict[str, Callable[[], Any]] = {
    'base': lambda: counting_manager(2, lengths=ENDLESS, reward=one),
    'shuffled': lambda: ShuffledEnvManager(counting_manager(2, lengths=ENDLESS, reward=one)),
    **{mode: partial(vector, mode) for mode in ('NEXT_STEP', 'SAME_STEP')},
}


@pytest.fixture(params=MANAGERS)
def manager(request: pytest.FixtureRequest) -> Any:
    return MANAGERS[request.param]()


def test_endless_episodes_are_cut_and_count_with_their_return_so_far(
    manager: Any, caplog: pytest.LogCaptureFixture
) -> None:
    board = FakeBoard()
    evaluator = make(manager, board, max_episode_len=7, n_episode=5)
    with caplog.at_level(logging.INFO, 'rlframe'):
        _, info = evaluator.eval(train_iter=1, envstep=9)
    assert info['eval_episode_len'] == [7] * 5 and info['eval_episode_return'] == [7.0] * 5
    assert info['eval_episode_cut'] == [True] * 5 and board.last('eval/cut_episodes') == 5
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    for text in ('5 of 5', '7 env steps', 'evaluator.max_episode_len', 'TimeLimit'):
        assert text in warnings[0]
    assert '5 of them cut' in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, 'rlframe'):
        evaluator.eval()
    assert not caplog.records, 'it is told once'


@pytest.mark.parametrize('mode', ['NEXT_STEP', 'DISABLED'])
def test_episodes_that_end_by_themselves_are_not_cut(mode: str) -> None:
    board = FakeBoard()
    _, info = make(vector(mode, 7), board, max_episode_len=7).eval()
    assert info['eval_episode_cut'] == [False] * 4 and info['eval_episode_len'] == [7] * 4
    assert 'eval/cut_episodes' not in {tag for tag, *_ in board.scalars}


def test_only_the_episodes_that_are_too_long_are_cut() -> None:
    manager = counting_manager(2, lengths=[lambda e: 3, lambda e: ENDLESS], reward=one)
    _, info = make(manager, max_episode_len=30).eval()
    assert info['eval_episode_len'] == [3, 3, 30, 30]
    assert info['eval_episode_cut'] == [False, False, True, True]
    assert [env.frames for env in envs_of(manager)] == [6, 60]


def test_cut_games_are_judged_by_the_returns_so_far() -> None:
    manager = counting_players(2, lengths=ENDLESS, reward=lambda *place: 1.0)
    evaluator = BattleInteractionSerialEvaluator(
        {'n_episode': 4, 'max_episode_len': 6}, manager, ScriptedPolicy().eval_mode
    )
    _, info = evaluator.eval()
    assert info['eval_episode_len'] == [6] * 4 and info['eval_episode_cut'] == [True] * 4
    assert len(info['seat']) == 4 and sorted(info['seat']) == [0, 0, 1, 1]
    assert np.add(info['win'], np.add(info['draw'], info['loss'])).tolist() == [1.0] * 4


def test_default_length_is_for_envs_without_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('rlframe.worker.collector.rollout.DEFAULT_LENGTH', 7)
    assert make(counting_manager(2, lengths=ENDLESS)).eval()[1]['eval_episode_len'] == [7] * 4
    cartpole = GymVectorEnvManager.from_factory(GymEnvFactory({'env_id': 'CartPole-v1'}), 2)
    _, info = make(cartpole).eval()
    assert info['eval_episode_cut'] == [False] * 4 and min(info['eval_episode_len']) > 7


def test_status_says_how_far_an_evaluation_is() -> None:
    seen: list[str] = []
    evaluator = make(counting_manager(2, lengths=4, reward=one))
    evaluator.on_step = lambda: seen.append(evaluator.status())
    assert evaluator.status() == ''
    evaluator.eval()
    assert seen[0] == 'evaluating: 0 of 4 episodes, 2 env steps'
    assert seen[-1] == 'evaluating: 2 of 4 episodes, 16 env steps' and evaluator.status() == ''
