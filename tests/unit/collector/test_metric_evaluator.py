"""Scores on labelled data: what is best, when to stop, and what counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from rlframe.data import Batch
from rlframe.policy import EvalMode
from rlframe.worker import IMetric, MetricSerialEvaluator


class Error(IMetric):
    """The mean squared error; less is better."""

    def eval(self, inputs: Any, label: Any) -> dict[str, Any]:
        return {'mse': ((inputs['action'] - label) ** 2).mean(), 'count': len(label)}

    def reduce_mean(self, inputs: Any) -> dict[str, Any]:
        return {
            name: torch.stack([torch.as_tensor(s[name]).float() for s in inputs]).mean() for name in inputs[0]
        }

    def gt(self, metric1: Any, metric2: Any) -> bool:
        return metric2 is None or metric1['mse'] <= metric2['mse']


class Line:
    """Answers slope * x."""

    def __init__(self, slope: float) -> None:
        self.slope, self.rows = slope, 0

    def forward(self, obs: Any, env_id: Any) -> Batch:
        assert env_id.tolist() == list(range(len(obs)))
        self.rows += len(obs)
        return Batch(action=self.slope * obs)

    @property
    def eval_mode(self) -> EvalMode:
        def nothing(*args: Any) -> Any: ...

        return EvalMode(self.forward, nothing, nothing, nothing, nothing, nothing)


def make(slope: float = 2.0, board: Any = None, **cfg: Any) -> tuple[MetricSerialEvaluator, Line]:
    x = torch.arange(10.0)
    loader = DataLoader(TensorDataset(x, 2 * x), batch_size=5, shuffle=True)
    line = Line(slope)
    return MetricSerialEvaluator(cfg, None, line.eval_mode, board, data=(loader, Error())), line


def test_less_error_is_better_and_an_equal_one_is_not() -> None:
    saved: list[str] = []
    evaluator, line = make(stop_value={'mse': 0.0})
    errors = []
    for slope, count in ((5.0, 1), (1.0, 2), (3.0, 2), (1.0, 2), (2.0, 3)):
        line.slope = slope
        stop, score = evaluator.eval(saved.append, train_iter=5)
        errors.append(score['mse'])
        assert len(saved) == count and set(saved) == {'ckpt_best.pth.tar'}
        assert stop is (slope == 2.0) and evaluator.latest == score
    assert errors == [256.5, 28.5, 28.5, 28.5, 0.0]
    assert evaluator.best == {'mse': 0.0, 'count': 5.0} and line.rows == 50
    assert evaluator.eval(train_iter=0)[0] is False, 'not before training began'


def test_bad_pairs_and_empty_loaders_are_refused() -> None:
    for bad in ([1, 2, 3], (np.zeros(3), 'metric'), 7):
        with pytest.raises(TypeError, match=r'takes a pair \(loader, IMetric\)'):
            MetricSerialEvaluator({}, bad)
    with pytest.raises(ValueError, match='needs a policy'):
        MetricSerialEvaluator({}, ([], Error())).eval()
    with pytest.raises(ValueError, match='yields nothing'):
        MetricSerialEvaluator({}, ([], Error()), Line(1.0).eval_mode).eval()
