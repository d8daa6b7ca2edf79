"""What every registered serial evaluator has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_evaluator.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from error_texts import raises
from fakes import FakeBoard, ScriptedPolicy, counting_manager
from games import counting_players

from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.worker import IMetric, ISerialEvaluator, create_serial_evaluator

Make = Any


class Rewards(IMetric):
    """Scores every batch with three rewards."""

    def __init__(self, reward: Callable[..., float]) -> None:
        self._reward = reward

    def eval(self, inputs: Any, label: Any) -> dict[str, float]:
        return {'score': sum(self._reward(0, 0, step) for step in (1, 2, 3))}

    def reduce_mean(self, inputs: Any) -> dict[str, float]:
        return {'score': float(np.mean([score['score'] for score in inputs]))}

    def gt(self, metric1: Any, metric2: Any) -> bool:
        return metric2 is None or metric1['score'] >= getattr(metric2, 'get', {'score': metric2}.get)('score')


def world(kind: str, reward: Callable[..., float] = lambda *place: 1.0) -> Any:
    """Returns what an evaluator of this kind measures on: the score is three rewards."""
    if kind == 'metric':
        return [(np.zeros((2, 3), np.float32), np.zeros(2))] * 4, Rewards(reward)
    make_envs = counting_players if kind == 'battle_interaction' else counting_manager
    return make_envs(2, lengths=3, reward=reward)


def number(score: Any) -> float:
    """Returns a score as a number."""
    return float(score['score']) if isinstance(score, dict) else score


@pytest.fixture(params=names_of(SERIAL_EVALUATOR_REGISTRY))
def make(request: pytest.FixtureRequest) -> Make:
    """Builds the evaluator under test around what scores 3."""

    def build(reward: Any = lambda *place: 1.0, board: Any = None, **cfg: Any) -> ISerialEvaluator:
        return create_serial_evaluator(
            {'type': request.param, 'n_episode': 4} | cfg,
            env=world(request.param, reward),
            policy=ScriptedPolicy().eval_mode,
            tb_logger=board,
        )

    build.kind = request.param
    return build


def test_should_eval_asks_first_and_then_every_eval_freq(make: Make) -> None:
    evaluator = make(eval_freq=1000)
    asked = [evaluator.should_eval(i) for i in (0, 0, 1, 999, 1000, 1001)]
    assert asked == [True, False, False, False, True, False]


def test_should_eval_counts_env_steps_if_the_interval_says_so(make: Make) -> None:
    evaluator, other = make(eval_freq='1e3 env steps'), make(eval_freq='1_000 env steps')
    asked = [(0, 0), (0, 300), (1, 999), (2, 1004), (3, 2003)]
    assert [evaluator.should_eval(*counts) for counts in asked] == [True, False, False, True, False]
    other.load_state_dict(evaluator.state_dict())
    assert [other.should_eval(*counts) for counts in ((3, 2003), (4, 2004))] == [False, True]
    with raises(ValueError):
        evaluator.should_eval(5)
    old = {name: value for name, value in evaluator.state_dict().items() if name != 'last_eval_envstep'}
    evaluator.load_state_dict(old)  # of a checkpoint without it
    assert evaluator.should_eval(5, 2010)


def test_best_is_strictly_greater_and_the_stop_rule_needs_training(make: Make) -> None:
    saved: list[str] = []
    evaluator = make(stop_value=3.0)
    assert evaluator.eval(saved.append, train_iter=0, envstep=0)[0] is False
    stop, info = evaluator.eval(saved.append, train_iter=5, envstep=50)
    assert stop is True and saved == ['ckpt_best.pth.tar']
    assert info.get('eval_episode_return', [info.get('score')] * 4) == [3.0] * 4
    assert number(evaluator.best) == number(evaluator.latest) == 3.0
    if 'eval_episode_return' in info:
        assert len(evaluator.eval(n_episode=2)[1]['eval_episode_return']) == 2


def test_a_return_that_is_the_goal_but_for_rounding_reaches_it(make: Make) -> None:
    assert sum([0.3] * 3) < 0.9
    if make.kind == 'metric':
        pytest.skip('its own gt compares')
    assert make(lambda *place: 0.3, stop_value=0.9).eval(train_iter=5)[0] is True


def test_submit_and_poll_give_what_eval_gives(make: Make) -> None:
    evaluator = make(stop_value=3.0)
    evaluator.submit(None, 5, 50)
    (result,) = evaluator.poll()
    assert result.stop and (result.train_iter, result.envstep) == (5, 50) and not evaluator.poll()


def test_scores_are_written_at_the_env_step(make: Make) -> None:
    board = FakeBoard()
    make(board=board).eval(train_iter=5, envstep=50)
    (tag,) = board.tags() & {'eval/mean_reward', 'eval/score'}
    assert board.last(tag) == 3.0 and {step for _, _, step in board.scalars} == {50}


def test_global_randomness_is_left_alone(make: Make) -> None:
    evaluator = make(reward=lambda *place: np.random.random())  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    evaluator.eval()
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002


def test_state_keeps_the_best_and_reset_begins_anew(make: Make) -> None:
    evaluator, other = make(), make()
    evaluator.should_eval(0)
    evaluator.eval(train_iter=5)
    evaluator.reset_policy(ScriptedPolicy().eval_mode)
    evaluator.reset_env(world(make.kind, lambda *place: 0.0))
    evaluator.eval(train_iter=6)
    other.load_state_dict(evaluator.state_dict())
    assert number(evaluator.best) == number(other.best) == 3.0 and not other.should_eval(0)
    assert number(evaluator.latest) == number(other.latest) == 0.0
    other.reset(ScriptedPolicy().eval_mode, world(make.kind, lambda *place: 0.0))
    assert other.should_eval(0) and other.best is other.worst
    other.eval(train_iter=6)
    assert number(other.best) == 0.0


def test_close_may_be_called_twice(make: Make) -> None:
    evaluator = make()
    evaluator.close()
    evaluator.close()


def test_the_type_defaults_to_interaction() -> None:
    assert type(create_serial_evaluator({})).__name__ == 'InteractionSerialEvaluator'
    with raises(ConfigError):
        create_serial_evaluator({'type': 'interactoin'})
