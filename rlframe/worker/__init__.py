"""Workers: the parts that an experiment is made of, under the names that DI-engine's users know.

Each is built from its config section by a registry and knows nothing of the others; a pipeline brings them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.worker.collector import (
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
    EpisodeSerialCollector,
    IMetric,
    InteractionSerialEvaluator,
    ISerialCollector,
    ISerialEvaluator,
    MetricSerialEvaluator,
    SampleSerialCollector,
    VectorEvalMonitor,
    create_serial_collector,
    create_serial_evaluator,
    get_serial_collector_cls,
    to_tensor_transitions,
)
from rlframe.worker.coordinator import BaseSerialCommander, create_commander
from rlframe.worker.learner import (
    BaseLearner,
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    create_learner,
    merge_hooks,
    register_learner_hook,
)
from rlframe.worker.replay_buffer import (
    AdvancedReplayBuffer,
    EpisodeReplayBuffer,
    IBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
    create_buffer,
    get_buffer_cls,
)

if TYPE_CHECKING:
    from rlframe.worker.collector import RayCollector

__all__ = [
    'AdvancedReplayBuffer',
    'BaseLearner',
    'BaseSerialCommander',
    'BattleEpisodeSerialCollector',
    'BattleInteractionSerialEvaluator',
    'BattleSampleSerialCollector',
    'EpisodeReplayBuffer',
    'EpisodeSerialCollector',
    'IBuffer',
    'IMetric',
    'ISerialCollector',
    'ISerialEvaluator',
    'InteractionSerialEvaluator',
    'LearnerHook',
    'MetricSerialEvaluator',
    'NaiveReplayBuffer',
    'RayCollector',
    'SampleSerialCollector',
    'SequenceReplayBuffer',
    'VectorEvalMonitor',
    'add_learner_hook',
    'build_learner_hook_by_cfg',
    'create_buffer',
    'create_commander',
    'create_learner',
    'create_serial_collector',
    'create_serial_evaluator',
    'get_buffer_cls',
    'get_serial_collector_cls',
    'merge_hooks',
    'register_learner_hook',
    'to_tensor_transitions',
]


def __getattr__(name: str) -> Any:
    """Imports what needs Ray when it is asked for."""
    if name == 'RayCollector':
        from rlframe.worker.collector import RayCollector

        return RayCollector
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
