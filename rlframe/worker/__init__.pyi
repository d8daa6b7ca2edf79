from rlframe.backend.ray import RayCollector as RayCollector
from rlframe.worker.collector.collector_interface import ISerialCollector as ISerialCollector
from rlframe.worker.collector.episode_serial_collector import EpisodeSerialCollector as EpisodeSerialCollector
from rlframe.worker.collector.serial_collector import SampleSerialCollector as SampleSerialCollector
from rlframe.worker.collector.tensor_transitions import to_tensor_transitions as to_tensor_transitions
from rlframe.worker.comm.comm_interface import BaseCommCollector as BaseCommCollector
from rlframe.worker.comm.comm_interface import BaseCommLearner as BaseCommLearner
from rlframe.worker.comm.factory import create_comm_collector as create_comm_collector
from rlframe.worker.comm.factory import create_comm_learner as create_comm_learner
from rlframe.worker.comm.factory import create_parallel_collector as create_parallel_collector
from rlframe.worker.comm.factory import get_parallel_collector_cls as get_parallel_collector_cls
from rlframe.worker.comm.flask_fs import FlaskFileSystemCollector as FlaskFileSystemCollector
from rlframe.worker.comm.flask_fs import FlaskFileSystemLearner as FlaskFileSystemLearner
from rlframe.worker.comm.learner_aggregator import LearnerAggregator as LearnerAggregator
from rlframe.worker.comm.naive_collector import NaiveCollector as NaiveCollector
from rlframe.worker.commanders import BaseParallelCommander as BaseParallelCommander
from rlframe.worker.commanders import BaseSerialCommander as BaseSerialCommander
from rlframe.worker.commanders import create_commander as create_commander
from rlframe.worker.commanders import create_parallel_commander as create_parallel_commander
from rlframe.worker.coordinator.coordinator import Coordinator as Coordinator
from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator as ISerialEvaluator
from rlframe.worker.evaluator.base_serial_evaluator import VectorEvalMonitor as VectorEvalMonitor
from rlframe.worker.evaluator.eval_metric import EvalMetric as EvalMetric
from rlframe.worker.evaluator.eval_metric import PlayedEpisodes as PlayedEpisodes
from rlframe.worker.evaluator.metric import IMetric as IMetric
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
from rlframe.worker.parallel.base_parallel_collector import BaseParallelCollector as BaseParallelCollector
from rlframe.worker.parallel.marine_parallel_collector import (
    MarineParallelCollector as MarineParallelCollector,
)
from rlframe.worker.parallel.zergling_parallel_collector import (
    ZerglingParallelCollector as ZerglingParallelCollector,
)
from rlframe.worker.players.battle_collector import (
    BattleEpisodeSerialCollector as BattleEpisodeSerialCollector,
)
from rlframe.worker.players.battle_collector import BattleSampleSerialCollector as BattleSampleSerialCollector
from rlframe.worker.players.battle_evaluator import (
    BattleInteractionSerialEvaluator as BattleInteractionSerialEvaluator,
)
from rlframe.worker.replay_buffer import AdvancedReplayBuffer as AdvancedReplayBuffer
from rlframe.worker.replay_buffer import EpisodeReplayBuffer as EpisodeReplayBuffer
from rlframe.worker.replay_buffer import IBuffer as IBuffer
from rlframe.worker.replay_buffer import NaiveReplayBuffer as NaiveReplayBuffer
from rlframe.worker.replay_buffer import SequenceReplayBuffer as SequenceReplayBuffer
from rlframe.worker.replay_buffer import create_buffer as create_buffer
from rlframe.worker.replay_buffer import get_buffer_cls as get_buffer_cls
