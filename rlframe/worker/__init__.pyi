from rlframe.backend.ray import RayCollector as RayCollector
from rlframe.parallel.base_parallel_collector import BaseParallelCollector as BaseParallelCollector
from rlframe.parallel.comm import FlaskFileSystemCollector as FlaskFileSystemCollector
from rlframe.parallel.comm import FlaskFileSystemLearner as FlaskFileSystemLearner
from rlframe.parallel.comm import NaiveCollector as NaiveCollector
from rlframe.parallel.comm import create_comm_collector as create_comm_collector
from rlframe.parallel.comm import create_comm_learner as create_comm_learner
from rlframe.parallel.comm import create_parallel_collector as create_parallel_collector
from rlframe.parallel.comm import get_parallel_collector_cls as get_parallel_collector_cls
from rlframe.parallel.comm_collector import BaseCommCollector as BaseCommCollector
from rlframe.parallel.comm_learner import BaseCommLearner as BaseCommLearner
from rlframe.parallel.coordinator.base_parallel_commander import (
    BaseParallelCommander as BaseParallelCommander,
)
from rlframe.parallel.coordinator.base_parallel_commander import (
    create_parallel_commander as create_parallel_commander,
)
from rlframe.parallel.coordinator.coordinator import Coordinator as Coordinator
from rlframe.parallel.parallel_collectors import MarineParallelCollector as MarineParallelCollector
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector as ZerglingParallelCollector
from rlframe.pipeline.learner_aggregator import LearnerAggregator as LearnerAggregator
from rlframe.worker.collector.base_serial_collector import ISerialCollector as ISerialCollector
from rlframe.worker.collector.battle_collector import (
    BattleEpisodeSerialCollector as BattleEpisodeSerialCollector,
)
from rlframe.worker.collector.battle_collector import (
    BattleSampleSerialCollector as BattleSampleSerialCollector,
)
from rlframe.worker.collector.serial_collector import EpisodeSerialCollector as EpisodeSerialCollector
from rlframe.worker.collector.serial_collector import SampleSerialCollector as SampleSerialCollector
from rlframe.worker.collector.tensor_collector import to_tensor_transitions as to_tensor_transitions
from rlframe.worker.commander import BaseSerialCommander as BaseSerialCommander
from rlframe.worker.commander import create_commander as create_commander
from rlframe.worker.curriculum import ScheduleRule as ScheduleRule
from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator as ISerialEvaluator
from rlframe.worker.evaluator.base_serial_evaluator import VectorEvalMonitor as VectorEvalMonitor
from rlframe.worker.evaluator.battle_evaluator import (
    BattleInteractionSerialEvaluator as BattleInteractionSerialEvaluator,
)
from rlframe.worker.evaluator.eval_metric import EvalMetric as EvalMetric
from rlframe.worker.evaluator.eval_metric import IMetric as IMetric
from rlframe.worker.evaluator.eval_metric import PlayedEpisodes as PlayedEpisodes
from rlframe.worker.evaluator.metric_evaluator import MetricSerialEvaluator as MetricSerialEvaluator
from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator as InteractionSerialEvaluator
from rlframe.worker.factory import create_serial_collector as create_serial_collector
from rlframe.worker.factory import create_serial_evaluator as create_serial_evaluator
from rlframe.worker.factory import get_serial_collector_cls as get_serial_collector_cls
from rlframe.worker.learner import BaseLearner as BaseLearner
from rlframe.worker.learner import LearnerHook as LearnerHook
from rlframe.worker.learner import add_learner_hook as add_learner_hook
from rlframe.worker.learner import build_learner_hook_by_cfg as build_learner_hook_by_cfg
from rlframe.worker.learner import create_learner as create_learner
from rlframe.worker.learner import merge_hooks as merge_hooks
from rlframe.worker.learner import register_learner_hook as register_learner_hook
from rlframe.worker.replay_buffer import AdvancedReplayBuffer as AdvancedReplayBuffer
from rlframe.worker.replay_buffer import EpisodeReplayBuffer as EpisodeReplayBuffer
from rlframe.worker.replay_buffer import IBuffer as IBuffer
from rlframe.worker.replay_buffer import NaiveReplayBuffer as NaiveReplayBuffer
from rlframe.worker.replay_buffer import SequenceReplayBuffer as SequenceReplayBuffer
from rlframe.worker.replay_buffer import create_buffer as create_buffer
from rlframe.worker.replay_buffer import get_buffer_cls as get_buffer_cls
