from rlframe.backend.ray import RayCollector as RayCollector
from rlframe.worker.collector.base_serial_collector import ISerialCollector as ISerialCollector
from rlframe.worker.collector.battle_collector import (
    BattleEpisodeSerialCollector as BattleEpisodeSerialCollector,
)
from rlframe.worker.collector.battle_collector import (
    BattleSampleSerialCollector as BattleSampleSerialCollector,
)
from rlframe.worker.collector.dataset_collector import DatasetSerialCollector as DatasetSerialCollector
from rlframe.worker.collector.serial_collector import EpisodeSerialCollector as EpisodeSerialCollector
from rlframe.worker.collector.serial_collector import SampleSerialCollector as SampleSerialCollector
from rlframe.worker.collector.tensor_collector import TensorSerialCollector as TensorSerialCollector
from rlframe.worker.collector.tensor_collector import to_tensor_transitions as to_tensor_transitions
from rlframe.worker.evaluator.base_serial_evaluator import ISerialEvaluator as ISerialEvaluator
from rlframe.worker.evaluator.base_serial_evaluator import VectorEvalMonitor as VectorEvalMonitor
from rlframe.worker.evaluator.battle_evaluator import (
    BattleInteractionSerialEvaluator as BattleInteractionSerialEvaluator,
)
from rlframe.worker.evaluator.eval_metric import AccuracyMetric as AccuracyMetric
from rlframe.worker.evaluator.eval_metric import IMetric as IMetric
from rlframe.worker.evaluator.eval_metric import SquaredErrorMetric as SquaredErrorMetric
from rlframe.worker.evaluator.metric_evaluator import MetricSerialEvaluator as MetricSerialEvaluator
from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator as InteractionSerialEvaluator
from rlframe.worker.factory import create_serial_collector as create_serial_collector
from rlframe.worker.factory import create_serial_evaluator as create_serial_evaluator
from rlframe.worker.factory import get_serial_collector_cls as get_serial_collector_cls
