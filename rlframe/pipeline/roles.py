"""From a compiled config to the parts of parallel mode's roles; those of rank 0 equal the parts of a serial run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.data.timestep import EnvSpec
from rlframe.pipeline import build
from rlframe.utils.seed import incarnation_seed
from rlframe.worker import create_serial_evaluator
from rlframe.worker.collector.counted import MakeParts, Parts
from rlframe.worker.comm.transport_learner import LearnerParts
from rlframe.worker.coordinator.base_parallel_commander import BaseParallelCommander
from rlframe.worker.coordinator.solo_commander import SoloCommander
from rlframe.worker.coordinator.training_data import TrainingData
from rlframe.worker.parallel.base_parallel_collector import Evaluation

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig


def collector_maker(cfg: ExperimentConfig) -> MakeParts:
    """Returns a function that creates a collector with envs and policy, from a rank and an incarnation."""

    def make(rank: int, incarnation: int) -> Parts:
        own = _prepared(cfg, rank, incarnation)
        own.policy.collect.collector.collect_print_freq = None
        return build.make_collector_parts(own, build.make_factory(own), rank, rank)

    return make


def evaluator_maker(cfg: ExperimentConfig) -> Callable[[int, int], Evaluation]:
    """Returns a function that creates an evaluator with envs and policy, from a rank and an incarnation.

    Every one plays the episodes that the evaluator of a serial run plays.
    """

    def make(rank: int, incarnation: int) -> Evaluation:
        own = _prepared(cfg, 0, 0)
        factory = build.make_factory(own)
        policy = build.make_policy(own, factory.spec, None, ('eval',), rank)
        env = build.make_eval_env(own, factory, own.env.evaluator_env_num)
        acting = build.with_opponents(own, policy.eval_mode, factory.spec, own.seed)
        evaluator = create_serial_evaluator(own.policy.eval.evaluator, env=env, policy=acting, seed=own.seed)
        return Evaluation(evaluator, env, policy.eval_mode)

    return make


def learner_maker(cfg: ExperimentConfig) -> Callable[[int, int], LearnerParts]:
    """Returns a function that creates a learner with its policy."""

    def make(rank: int, incarnation: int) -> LearnerParts:
        own = _prepared(cfg, 0, 0)
        policy = build.make_policy(own, build.make_factory(own).spec)
        return LearnerParts(build.make_learner(own, policy), policy.collect_mode)

    return make


def training_data(cfg: ExperimentConfig) -> TrainingData:
    """Returns the empty store of the coordinator, with the config's replay buffer if it has one."""
    buffer, learn = build.make_buffer(cfg), cfg.policy.learn
    if buffer is None:
        return TrainingData(None)
    return TrainingData(buffer, learn.batch_size, learn.update_per_collect)


def solo_commander(cfg: ExperimentConfig, spec: EnvSpec, **options: Any) -> BaseParallelCommander:
    """Returns the commander that trains one policy, with the schedule of the config.

    Args:
        cfg: A compiled config.
        spec: Spaces of the env.
        options: Options of ``SoloCommander``, such as ``collector_task_space``.
    """
    stop_value = cfg.policy.eval.evaluator['stop_value']
    return SoloCommander(
        options,
        policy=build.make_policy(cfg, spec).command_mode,
        seed=cfg.seed,
        eval_freq=cfg.policy.eval.evaluator['eval_freq'],
        stop_value=spec.reward_threshold if stop_value is None else stop_value,
        random_collect_size=cfg.policy.random_collect_size,
    )


def _prepared(cfg: ExperimentConfig, rank: int, incarnation: int) -> ExperimentConfig:
    """Prepares this process for a config, and returns the copy for a worker: a replaced one has another seed."""
    own = copy.deepcopy(cfg)
    own.seed = incarnation_seed(cfg.seed, rank, incarnation)
    build.prepare(own)
    return own
