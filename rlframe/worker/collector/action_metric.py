"""Scores of a policy on recorded actions, for the evaluator ``metric``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.worker.collector.metric_evaluator import IMetric


class AccuracyMetric(IMetric):
    """Share of discrete actions that are the recorded ones, counted row by row: ``accuracy``.

    Several switches or classes a row are one action: all must agree.
    """

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:
        """Scores a policy's output [n] against recorded actions [n, ...]."""
        same = np.asarray(inputs['action']) == np.asarray(label)
        return {'accuracy': float(same.reshape(len(same), -1).all(1).mean()), 'count': len(same)}

    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return _weighted(inputs, 'accuracy')

    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        return metric2 is None or bool(metric1['accuracy'] >= _value(metric2, 'accuracy'))


class SquaredErrorMetric(IMetric):
    """Mean squared distance of continuous actions from the recorded ones, in the env's own unit: ``mse``."""

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:
        """Scores a policy's output [n] against recorded actions [n, ...]."""
        error = np.asarray(inputs['action'], np.float64) - np.asarray(label, np.float64)
        return {'mse': float(np.square(error).mean()), 'count': len(error)}

    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return _weighted(inputs, 'mse')

    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        return metric2 is None or bool(metric1['mse'] <= _value(metric2, 'mse'))


def _weighted(scores: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Returns the mean over rows, not over batches."""
    counts = [score['count'] for score in scores]
    return {name: float(np.average([score[name] for score in scores], weights=counts))}


def _value(score: Any, name: str) -> float:
    """Returns the number of a score, or of a stop value that is a number."""
    return float(score[name] if isinstance(score, Mapping) else score)
