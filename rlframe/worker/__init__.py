"""Workers: the parts of an experiment, under the names that DI-engine's users know.

Registries create them from their config sections; they do not know each other. A pipeline connects them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.utils.lazy import lazy_exports

if TYPE_CHECKING:
    from rlframe.backend.ray import RayCollector
    from rlframe.worker.collector.collector_interface import ISerialCollector
    from rlframe.worker.collector.episode_serial_collector import EpisodeSerialCollector
    from rlframe.worker.collector.serial_collector import SampleSerialCollector
    from rlframe.worker.collector.tensor_transitions import to_tensor_transitions
    from rlframe.worker.coordinator import (
        BaseParallelCommander,
        BaseSerialCommander,
        create_commander,
        create_parallel_commander,
    )
    from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor
    from rlframe.worker.evaluator.metric import IMetric
    from rlframe.worker.evaluator.metric_evaluator import MetricSerialEvaluator
    from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator
    from rlframe.worker.factory import (
        create_serial_collector,
        create_serial_evaluator,
        get_serial_collector_cls,
    )
    from rlframe.worker.learner import (
        BaseLearner,
        LearnerHook,
        add_learner_hook,
        build_learner_hook_by_cfg,
        create_learner,
        merge_hooks,
        register_learner_hook,
    )
    from rlframe.worker.parallel.base_parallel_collector import BaseParallelCollector
    from rlframe.worker.parallel.comm_interface import BaseCommCollector, BaseCommLearner
    from rlframe.worker.parallel.factory import (
        create_comm_collector,
        create_comm_learner,
        create_parallel_collector,
        get_parallel_collector_cls,
    )
    from rlframe.worker.parallel.flask_fs import FlaskFileSystemCollector, FlaskFileSystemLearner
    from rlframe.worker.parallel.marine_parallel_collector import MarineParallelCollector
    from rlframe.worker.parallel.naive_collector import NaiveCollector
    from rlframe.worker.parallel.zergling_parallel_collector import ZerglingParallelCollector
    from rlframe.worker.players.battle_collector import (
        BattleEpisodeSerialCollector,
        BattleSampleSerialCollector,
    )
    from rlframe.worker.players.battle_evaluator import BattleInteractionSerialEvaluator
    from rlframe.worker.replay_buffer import (
        AdvancedReplayBuffer,
        EpisodeReplayBuffer,
        IBuffer,
        NaiveReplayBuffer,
        SequenceReplayBuffer,
        create_buffer,
        get_buffer_cls,
    )

__all__ = [
    'AdvancedReplayBuffer',
    'BaseCommCollector',
    'BaseCommLearner',
    'BaseLearner',
    'BaseParallelCollector',
    'BaseParallelCommander',
    'BaseSerialCommander',
    'BattleEpisodeSerialCollector',
    'BattleInteractionSerialEvaluator',
    'BattleSampleSerialCollector',
    'EpisodeReplayBuffer',
    'EpisodeSerialCollector',
    'FlaskFileSystemCollector',
    'FlaskFileSystemLearner',
    'IBuffer',
    'IMetric',
    'ISerialCollector',
    'ISerialEvaluator',
    'InteractionSerialEvaluator',
    'LearnerHook',
    'MarineParallelCollector',
    'MetricSerialEvaluator',
    'NaiveCollector',
    'NaiveReplayBuffer',
    'RayCollector',
    'SampleSerialCollector',
    'SequenceReplayBuffer',
    'VectorEvalMonitor',
    'ZerglingParallelCollector',
    'add_learner_hook',
    'build_learner_hook_by_cfg',
    'create_buffer',
    'create_comm_collector',
    'create_comm_learner',
    'create_commander',
    'create_learner',
    'create_parallel_collector',
    'create_parallel_commander',
    'create_serial_collector',
    'create_serial_evaluator',
    'get_buffer_cls',
    'get_parallel_collector_cls',
    'get_serial_collector_cls',
    'merge_hooks',
    'register_learner_hook',
    'to_tensor_transitions',
]
__getattr__ = lazy_exports(
    __name__,
    {
        'RayCollector': 'rlframe.backend.ray',
        'ISerialCollector': 'rlframe.worker.collector.collector_interface',
        'EpisodeSerialCollector': 'rlframe.worker.collector.episode_serial_collector',
        'create_serial_collector': 'rlframe.worker.factory',
        'create_serial_evaluator': 'rlframe.worker.factory',
        'get_serial_collector_cls': 'rlframe.worker.factory',
        'SampleSerialCollector': 'rlframe.worker.collector.serial_collector',
        'to_tensor_transitions': 'rlframe.worker.collector.tensor_transitions',
        'BaseParallelCommander': 'rlframe.worker.coordinator',
        'BaseSerialCommander': 'rlframe.worker.coordinator',
        'create_commander': 'rlframe.worker.coordinator',
        'create_parallel_commander': 'rlframe.worker.coordinator',
        'ISerialEvaluator': 'rlframe.worker.evaluator.base_serial_evaluator',
        'VectorEvalMonitor': 'rlframe.worker.evaluator.base_serial_evaluator',
        'IMetric': 'rlframe.worker.evaluator.metric',
        'MetricSerialEvaluator': 'rlframe.worker.evaluator.metric_evaluator',
        'InteractionSerialEvaluator': 'rlframe.worker.evaluator.serial_evaluator',
        'BaseLearner': 'rlframe.worker.learner',
        'LearnerHook': 'rlframe.worker.learner',
        'add_learner_hook': 'rlframe.worker.learner',
        'build_learner_hook_by_cfg': 'rlframe.worker.learner',
        'create_learner': 'rlframe.worker.learner',
        'merge_hooks': 'rlframe.worker.learner',
        'register_learner_hook': 'rlframe.worker.learner',
        'BaseCommCollector': 'rlframe.worker.parallel.comm_interface',
        'BaseCommLearner': 'rlframe.worker.parallel.comm_interface',
        'BaseParallelCollector': 'rlframe.worker.parallel.base_parallel_collector',
        'FlaskFileSystemCollector': 'rlframe.worker.parallel.flask_fs',
        'FlaskFileSystemLearner': 'rlframe.worker.parallel.flask_fs',
        'MarineParallelCollector': 'rlframe.worker.parallel.marine_parallel_collector',
        'NaiveCollector': 'rlframe.worker.parallel.naive_collector',
        'ZerglingParallelCollector': 'rlframe.worker.parallel.zergling_parallel_collector',
        'create_comm_collector': 'rlframe.worker.parallel.factory',
        'create_comm_learner': 'rlframe.worker.parallel.factory',
        'create_parallel_collector': 'rlframe.worker.parallel.factory',
        'get_parallel_collector_cls': 'rlframe.worker.parallel.factory',
        'BattleEpisodeSerialCollector': 'rlframe.worker.players.battle_collector',
        'BattleSampleSerialCollector': 'rlframe.worker.players.battle_collector',
        'BattleInteractionSerialEvaluator': 'rlframe.worker.players.battle_evaluator',
        'AdvancedReplayBuffer': 'rlframe.worker.replay_buffer',
        'EpisodeReplayBuffer': 'rlframe.worker.replay_buffer',
        'IBuffer': 'rlframe.worker.replay_buffer',
        'NaiveReplayBuffer': 'rlframe.worker.replay_buffer',
        'SequenceReplayBuffer': 'rlframe.worker.replay_buffer',
        'create_buffer': 'rlframe.worker.replay_buffer',
        'get_buffer_cls': 'rlframe.worker.replay_buffer',
    },
)
