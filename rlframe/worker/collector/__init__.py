"""Collectors and evaluators: everything that lets a policy meet an env.

Both are made of the same parts: a ``Rollout`` that steps, an ``EpisodeLog`` that counts, and a rule for when it is enough.
Collectors record what happened as training samples, evaluators only how well it went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.worker.collector.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor
from rlframe.worker.collector.battle_collector import (
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
)
from rlframe.worker.collector.battle_evaluator import BattleInteractionSerialEvaluator
from rlframe.worker.collector.collector_interface import ISerialCollector
from rlframe.worker.collector.dataset_collector import DatasetSerialCollector
from rlframe.worker.collector.episode_serial_collector import EpisodeSerialCollector
from rlframe.worker.collector.factory import (
    create_serial_collector,
    create_serial_evaluator,
    get_serial_collector_cls,
)
from rlframe.worker.collector.metric import AccuracyMetric, IMetric, SquaredErrorMetric
from rlframe.worker.collector.metric_evaluator import MetricSerialEvaluator
from rlframe.worker.collector.serial_collector import SampleSerialCollector
from rlframe.worker.collector.serial_evaluator import InteractionSerialEvaluator
from rlframe.worker.collector.tensor_transitions import to_tensor_transitions

if TYPE_CHECKING:
    from rlframe.worker.collector.ray_collector import RayCollector

__all__ = [
    'AccuracyMetric',
    'BattleEpisodeSerialCollector',
    'BattleInteractionSerialEvaluator',
    'BattleSampleSerialCollector',
    'DatasetSerialCollector',
    'EpisodeSerialCollector',
    'IMetric',
    'ISerialCollector',
    'ISerialEvaluator',
    'InteractionSerialEvaluator',
    'MetricSerialEvaluator',
    'RayCollector',
    'SampleSerialCollector',
    'SquaredErrorMetric',
    'VectorEvalMonitor',
    'create_serial_collector',
    'create_serial_evaluator',
    'get_serial_collector_cls',
    'to_tensor_transitions',
]


def __getattr__(name: str) -> Any:
    """Imports what needs Ray when it is asked for."""
    if name == 'RayCollector':
        from rlframe.utils.ray_session import check_installed

        check_installed(name)
        from rlframe.worker.collector.ray_collector import RayCollector

        return RayCollector
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
