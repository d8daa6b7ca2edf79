"""IMetric: scores answers for the evaluator ``metric``; and the scores of a policy on recorded actions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import gymnasium


class IMetric(ABC):
    """Scores outputs, and compares two scores. A score is a dict of numbers."""

    @abstractmethod
    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Returns the score of one batch.

        Args:
            inputs: Output of the policy.
            label: Expected output.
        """

    @abstractmethod
    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Returns the mean of the scores of batches."""

    @abstractmethod
    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        """Whether the first score is at least as good as the second; True if the second is None.

        Args:
            metric1: A score.
            metric2: A score, ``stop_value``, or None if there is no score yet.
        """

    def number(self, metric: Mapping[str, Any]) -> float:
        """Returns a score as a number to compare checkpoints, higher is better; NaN if unknown."""
        return math.nan


class AccuracyMetric(IMetric):
    """Share of discrete actions that are the recorded ones, counted row by row: ``accuracy``.

    Several switches or classes a row are one action: all must agree.
    """

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Scores a policy's output [n] against recorded actions [n, ...]."""
        same = np.asarray(inputs['action']) == np.asarray(label)
        return {'accuracy': float(same.reshape(len(same), -1).all(1).mean()), 'count': len(same)}

    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return _weighted(inputs, 'accuracy')

    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        return metric2 is None or bool(metric1['accuracy'] >= _value(metric2, 'accuracy'))

    def number(self, metric: Mapping[str, Any]) -> float:
        return float(metric['accuracy'])


class SquaredErrorMetric(IMetric):
    """Mean squared distance of continuous actions from the recorded ones, in the env's own unit: ``mse``."""

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Scores a policy's output [n] against recorded actions [n, ...]."""
        error = np.asarray(inputs['action'], np.float64) - np.asarray(label, np.float64)
        return {'mse': float(np.square(error).mean()), 'count': len(error)}

    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return _weighted(inputs, 'mse')

    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        return metric2 is None or bool(metric1['mse'] <= _value(metric2, 'mse'))

    def number(self, metric: Mapping[str, Any]) -> float:
        return -float(metric['mse'])


def action_metric(space: gymnasium.Space[Any]) -> IMetric:
    """Returns the metric for recorded actions of a space: squared error of continuous ones, accuracy of all others."""
    return SquaredErrorMetric() if type(space).__name__ == 'Box' else AccuracyMetric()


def _weighted(scores: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Returns the mean over rows, not over batches."""
    counts = [score['count'] for score in scores]
    return {name: float(np.average([score[name] for score in scores], weights=counts))}


def _value(score: Any, name: str) -> float:
    """Returns the number of a score, or of a stop value that is a number."""
    return float(score[name] if isinstance(score, Mapping) else score)
