"""Serial evaluators: they measure a policy by the returns of whole episodes, or by metrics on data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.utils.lazy import lazy_exports

if TYPE_CHECKING:
    from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor
    from rlframe.worker.evaluator.metric import AccuracyMetric, IMetric, SquaredErrorMetric
    from rlframe.worker.evaluator.metric_evaluator import MetricSerialEvaluator
    from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator

__all__ = [
    'AccuracyMetric',
    'IMetric',
    'ISerialEvaluator',
    'InteractionSerialEvaluator',
    'MetricSerialEvaluator',
    'SquaredErrorMetric',
    'VectorEvalMonitor',
]
__getattr__ = lazy_exports(
    __name__,
    {
        'ISerialEvaluator': 'rlframe.worker.evaluator.base_serial_evaluator',
        'VectorEvalMonitor': 'rlframe.worker.evaluator.base_serial_evaluator',
        'AccuracyMetric': 'rlframe.worker.evaluator.metric',
        'IMetric': 'rlframe.worker.evaluator.metric',
        'SquaredErrorMetric': 'rlframe.worker.evaluator.metric',
        'MetricSerialEvaluator': 'rlframe.worker.evaluator.metric_evaluator',
        'InteractionSerialEvaluator': 'rlframe.worker.evaluator.serial_evaluator',
    },
)
