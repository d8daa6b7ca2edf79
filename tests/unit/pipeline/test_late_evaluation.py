"""Evaluations whose answers come when the policy has been trained further: whose weights are the best, and what is saved."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from runs import differences

from rlframe import config
from rlframe.pipeline import SerialPipeline
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.worker.evaluator.base_serial_evaluator import EvalResult, ISerialEvaluator

SCORES = {0: 1.0, 5: 5.0, 10: 3.0, 15: 7.0, 20: 2.0}


class LateEvaluator(ISerialEvaluator):
    """Answers three rounds after it was asked, with a score that the train iteration alone decides."""

    answers_later = True
    rounds = 3

    def reset_env(self, _env: Any = None) -> None:
        self._asked: list[list[int]] = []

    def reset_policy(self, _policy: Any = None) -> None:
        self._policy = _policy

    def eval(self, *args: Any, **kwargs: Any) -> tuple[bool, dict[str, Any]]:
        raise NotImplementedError

    def submit(
        self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1, n_episode: int | None = None
    ) -> None:
        assert save_ckpt_fn is None
        self._asked.append([self.rounds, train_iter, envstep])

    def poll(self) -> list[EvalResult]:
        for asked in self._asked:
            asked[0] -= 1
        while self._asked and self._asked[0][0] < 0:
            self._answer()
        return super().poll()

    def wait(self) -> None:
        while self._asked:
            self._answer()

    def _answer(self) -> None:
        _, train_iter, envstep = self._asked.pop(0)
        self.latest = SCORES[train_iter]
        is_best = self.latest > self.best
        self.best = max(self.best, self.latest)
        stop = self.stop_value is not None and self.latest >= self.stop_value
        self._results.append(EvalResult(stop, {}, train_iter, envstep, self.latest, is_best))

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {'asked': copy.deepcopy(self._asked)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._asked = copy.deepcopy(state['asked'])


@pytest.fixture(autouse=True)
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SERIAL_EVALUATOR_REGISTRY._classes, 'interaction', LateEvaluator)


def start(**sections: Any) -> SerialPipeline:
    sections = {'max_train_iter': 20, 'evaluator': dict(eval_freq=5), **sections}
    pair = config_pair(learn=dict(batch_size=16, update_per_collect=1), **sections)
    return SerialPipeline(config.compile_config(*pair, seed=3))


def weights_by_iteration(pipeline: SerialPipeline) -> dict[int, Any]:
    """Runs a pipeline and returns the state of its policy at each train iteration."""
    states = {0: copy.deepcopy(pipeline.policy.learn_mode.state_dict())}

    def note(p: SerialPipeline) -> bool:
        states[p.progress.train_iter] = copy.deepcopy(p.policy.learn_mode.state_dict())
        return False

    pipeline.run(note)
    return states


def test_best_checkpoint_holds_the_weights_that_were_evaluated_not_the_newest() -> None:
    with start() as pipeline:
        states = weights_by_iteration(pipeline)
        best, manifest = load_checkpoint(pipeline.folder / 'ckpt' / 'best')
        assert pipeline.evaluator.best == 7.0 and pipeline.progress.train_iter == 20
        latest, _ = load_checkpoint(pipeline.folder / 'ckpt' / 'latest')
        assert 'held' not in latest and latest['evaluator']['asked'] == [], 'the last answer was waited for'
    assert manifest['score'] == 7.0 and manifest['progress']['train_iter'] == 15
    assert differences(best['policy'], states[15]) == []
    assert differences(best['policy'], states[18]) != []


def test_training_stops_when_the_answer_reaches_the_stop_value() -> None:
    with start(env=dict(stop_value=5.0)) as pipeline:
        pipeline.run()
        _, manifest = load_checkpoint(pipeline.folder / 'ckpt' / 'best')
        assert pipeline.stopped and 5 < pipeline.progress.train_iter < 10
    assert manifest['progress']['train_iter'] == 5 and manifest['score'] == 5.0


def test_run_that_is_resumed_with_an_answer_to_come_saves_the_same_best(tmp_path: Path) -> None:
    with start() as pipeline:
        pipeline.run(lambda p: p.progress.train_iter == 16)  # the evaluation of 15 is under way
        path = pipeline.save_checkpoint(tmp_path / 'saved')
        at_15 = copy.deepcopy(pipeline.checkpoints._unscored[0])
        assert len(pipeline.checkpoints._unscored) == 1
        pipeline.run()
        straight, manifest = load_checkpoint(pipeline.folder / 'ckpt' / 'best')
        assert differences(straight, at_15) == []
    with start() as resumed:
        resumed.load_checkpoint(path)
        resumed.run()
        best, again = load_checkpoint(resumed.folder / 'ckpt' / 'best')
        end = resumed.policy.learn_mode.state_dict()
    assert differences(best, straight) == []
    assert (again['score'], again['progress']) == (manifest['score'], manifest['progress'])
    assert differences(end, pipeline.policy.learn_mode.state_dict()) == []
