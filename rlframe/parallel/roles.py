"""The roles of parallel mode: makes a worker from a config, and runs it in a process of its own."""

from __future__ import annotations

import copy
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.config import shared_fingerprint
from rlframe.errors import RLFrameError
from rlframe.parallel.base_parallel_collector import Evaluation
from rlframe.parallel.comm import (
    create_comm_collector,
    create_comm_learner,
    create_parallel_collector,
    get_parallel_collector_cls,
)
from rlframe.parallel.comm_learner import LearnerParts
from rlframe.parallel.coordinator import assembly
from rlframe.parallel.learner_aggregator import LearnerAggregator
from rlframe.parallel.transport.base import Transport
from rlframe.pipeline import build
from rlframe.policy.parts.random_policy import random_opponent
from rlframe.registry import import_modules
from rlframe.run.progress import Progress
from rlframe.utils.seed import incarnation_seed
from rlframe.utils.serialize import from_bytes
from rlframe.worker import create_serial_collector, create_serial_evaluator
from rlframe.worker.collector.rollout import MakeParts, Parts

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig


def make_worker(
    cfg: ExperimentConfig,
    role: str,
    name: str,
    address: str | None = None,
    transport: Transport | None = None,
) -> Any:
    """Creates a comm collector or a comm learner; its envs and its policy are created when it works.

    Args:
        cfg: A compiled config of parallel mode.
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker, under which it comes back after a loss.
        address: Address of the coordinator.
        transport: A connection to the coordinator, in place of the address.
    """
    import_modules(cfg.import_names)  # this may be a process of its own
    given: dict[str, Any] = {'address': address, 'transport': transport, 'name': name}
    given['fingerprint'] = shared_fingerprint(cfg)
    if role == 'learner':
        section = _with_folder(cfg, cfg.parallel.comm_learner)
        return create_comm_learner(section, make_learner=learner_maker(cfg), **given)
    kind: Mapping[str, Any] = cfg.parallel.collector
    collector = create_parallel_collector(
        kind, make_collector=collector_maker(cfg), make_evaluator=evaluator_maker(cfg), instance_name=name
    )
    section, slots = _with_folder(cfg, cfg.parallel.comm_collector), cfg.env.collector_env_num
    return create_comm_collector(section, collector=collector, slots=slots, **given)


def _with_folder(cfg: ExperimentConfig, section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the options of a comm worker, with the shared folder of the run if it uses one."""
    folder = cfg.parallel.path_data
    return {**section, 'path_data': folder} if folder is not None and 'path_data' in section else section


def collector_maker(cfg: ExperimentConfig) -> MakeParts:
    """Returns a function that creates a collector with envs and policy, from a rank and an incarnation."""

    def make(rank: int, incarnation: int) -> Parts:
        own = _prepared(cfg, rank, incarnation)
        own.policy.collect.collector.collect_print_freq = None
        factory = build.make_factory(own)
        if _plays_games(cfg):
            return _parts_of_games(own, factory, rank)
        return build.make_collector_parts(own, factory, rank, rank)

    return make


def _plays_games(cfg: ExperimentConfig) -> bool:
    parallel = cfg.get('parallel')
    return parallel is not None and get_parallel_collector_cls(parallel.collector).plays_games


def _parts_of_games(cfg: ExperimentConfig, factory: Any, rank: int) -> Parts:
    """Creates a collector with a policy for each player."""
    env = build.make_env(cfg, factory, cfg.env.collector_env_num)
    progress, players = Progress(), range(factory.spec.player_num)
    policies = [
        build.make_policy(cfg, factory.spec, None, ('collect',), rank * len(players) + i) for i in players
    ]
    faces = [policy.collect_mode for policy in policies]
    given = {'policy': faces, 'seed': cfg.seed, 'rank': rank, 'progress': progress}
    collector = create_serial_collector(cfg.policy.collect.collector, env=env, **given)
    random = [build.random_actor(cfg, policies[i], rank * len(players) + i) for i in players]
    return Parts(collector, env, progress, faces, random)


def evaluator_maker(cfg: ExperimentConfig) -> Callable[[int, int], Evaluation]:
    """Returns a function that creates an evaluator with envs and policy, from a rank and an incarnation.

    Every one plays the episodes that the evaluator of a serial run plays.
    """

    def make(rank: int, incarnation: int) -> Evaluation:
        own = _prepared(cfg, 0, 0)
        factory = build.make_factory(own)
        players = factory.spec.player_num if _plays_games(cfg) else 1
        policies = [build.make_policy(own, factory.spec, None, ('eval',), rank) for _ in range(players)]
        env = build.make_eval_env(own, factory, own.env.evaluator_env_num)
        faces = [policy.eval_mode for policy in policies]
        acting = build.with_opponents(own, faces[0], factory.spec, own.seed)
        evaluator = create_serial_evaluator(own.policy.eval.evaluator, env=env, policy=acting, seed=own.seed)
        if not _plays_games(cfg):
            return Evaluation(evaluator, env, faces[0])
        random = [random_opponent(factory.spec, own.seed, player) for player in range(players)]
        return Evaluation(evaluator, env, faces, random)

    return make


def learner_maker(cfg: ExperimentConfig) -> Callable[[int, int], LearnerParts]:
    """Returns a function that creates a learner with its policy."""

    def make(rank: int, incarnation: int) -> LearnerParts:
        own = _prepared(cfg, 0, 0)
        policy = build.make_policy(own, build.make_factory(own).spec)
        return LearnerParts(build.make_learner(own, policy), policy.collect_mode, policy.command_mode)

    return make


def make_team(cfg: ExperimentConfig, folder: Path, transport: Transport, run_id: str) -> LearnerAggregator:
    """Creates the aggregator of a run with several learners, which join it at the port after the coordinator's.

    Args:
        cfg: A compiled config of parallel mode.
        folder: The run folder.
        transport: A connection to the coordinator.
        run_id: Id of the run.
    """
    own = copy.deepcopy(cfg)
    if own.parallel.coordinator.port:
        own.parallel.coordinator.port += 1
    server = assembly.make_server(own, shared_folder(cfg, folder, 'learner'), run_id)
    declared, section = LearnerAggregator.config_fields(), cfg.parallel.comm_learner
    options = {name: value for name, value in section.items() if name in declared and name != 'transport'}
    options |= {name: value for name, value in assembly.options_of(cfg).items() if name in declared}
    options['learner_num'] = cfg.parallel.learner_num
    given = {'transport': transport, 'name': 'learners', 'fingerprint': shared_fingerprint(cfg)}
    return LearnerAggregator(options, server=server, **given)


def shared_folder(cfg: ExperimentConfig, folder: Path, role: str = 'collector') -> str:
    """Returns the folder for arrays of a role: that of the config, or ``data`` in the run folder.

    Several learners have one of their own, which belongs to their aggregator.
    """
    shared = cfg.parallel.path_data or str(folder.absolute() / 'data')
    return f'{shared}-learners' if role == 'learner' and cfg.parallel.learner_num > 1 else shared


def worker_config(cfg: ExperimentConfig, path_data: str) -> ExperimentConfig:
    """Returns the config for workers on this machine, which share arrays in a folder."""
    own = copy.deepcopy(cfg)
    own.parallel.path_data = path_data
    for section in (own.parallel.comm_collector, own.parallel.comm_learner):
        section['transport'] = {**own.parallel.coordinator.transport, **section.get('transport', {})}
    return own


def _prepared(cfg: ExperimentConfig, rank: int, incarnation: int) -> ExperimentConfig:
    """Prepares this process for a config, and returns the copy for a worker: a replaced one has another seed."""
    own = copy.deepcopy(cfg)
    own.seed = incarnation_seed(cfg.seed, rank, incarnation)
    build.prepare(own)
    return own


def main(role: str, name: str, address: str) -> None:
    """Works until the coordinator or SIGTERM ends it; then ends this process.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        address: Address of the coordinator.
    """
    cfg = from_bytes(sys.stdin.buffer.read())

    try:
        worker = make_worker(cfg, role, name, address)

        def stop(*_: Any) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        worker.run()
    except RLFrameError as error:
        sys.stderr.write(f'rlframe: {type(error).__name__}: {" ".join(str(error).split())}\n')
        sys.exit(1)
