"""Serial collectors: they step envs with a policy and return training samples.

A collector consists of a ``Rollout`` that steps, an ``EpisodeLog`` that counts and a recorder that cuts trajectories.
Evaluators and collectors of other rooms are exported here under their DI-engine names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.utils.lazy import lazy_exports

if TYPE_CHECKING:
    from rlframe.backend.ray import RayCollector
    from rlframe.worker.collector.collector_interface import ISerialCollector
    from rlframe.worker.collector.dataset_collector import DatasetSerialCollector
    from rlframe.worker.collector.episode_serial_collector import EpisodeSerialCollector
    from rlframe.worker.collector.serial_collector import SampleSerialCollector
    from rlframe.worker.collector.tensor_transitions import to_tensor_transitions
    from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor
    from rlframe.worker.evaluator.metric import AccuracyMetric, IMetric, SquaredErrorMetric
    from rlframe.worker.evaluator.metric_evaluator import MetricSerialEvaluator
    from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator
    from rlframe.worker.factory import (
        create_serial_collector,
        create_serial_evaluator,
        get_serial_collector_cls,
    )
    from rlframe.worker.players.battle_collector import (
        BattleEpisodeSerialCollector,
        BattleSampleSerialCollector,
    )
    from rlframe.worker.players.battle_evaluator import BattleInteractionSerialEvaluator

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
__getattr__ = lazy_exports(
    __name__,
    {
        'RayCollector': 'rlframe.backend.ray',
        'ISerialCollector': 'rlframe.worker.collector.collector_interface',
        'DatasetSerialCollector': 'rlframe.worker.collector.dataset_collector',
        'EpisodeSerialCollector': 'rlframe.worker.collector.episode_serial_collector',
        'create_serial_collector': 'rlframe.worker.factory',
        'create_serial_evaluator': 'rlframe.worker.factory',
        'get_serial_collector_cls': 'rlframe.worker.factory',
        'SampleSerialCollector': 'rlframe.worker.collector.serial_collector',
        'to_tensor_transitions': 'rlframe.worker.collector.tensor_transitions',
        'ISerialEvaluator': 'rlframe.worker.evaluator.base_serial_evaluator',
        'VectorEvalMonitor': 'rlframe.worker.evaluator.base_serial_evaluator',
        'AccuracyMetric': 'rlframe.worker.evaluator.metric',
        'IMetric': 'rlframe.worker.evaluator.metric',
        'SquaredErrorMetric': 'rlframe.worker.evaluator.metric',
        'MetricSerialEvaluator': 'rlframe.worker.evaluator.metric_evaluator',
        'InteractionSerialEvaluator': 'rlframe.worker.evaluator.serial_evaluator',
        'BattleEpisodeSerialCollector': 'rlframe.worker.players.battle_collector',
        'BattleSampleSerialCollector': 'rlframe.worker.players.battle_collector',
        'BattleInteractionSerialEvaluator': 'rlframe.worker.players.battle_evaluator',
    },
)
