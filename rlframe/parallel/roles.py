"""The roles of parallel mode: makes a worker from a config, and starts and replaces the workers of a run."""

from __future__ import annotations

import copy
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
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
from rlframe.parallel.transport.answering import Server
from rlframe.parallel.transport.base import Transport
from rlframe.pipeline import build
from rlframe.pipeline.learner_aggregator import make_learners
from rlframe.policy.parts.random_policy import random_opponent, with_opening
from rlframe.registry import LAUNCHER_REGISTRY, REGISTRIES
from rlframe.remote.places import ChildPlace, Place, ThreadPlace
from rlframe.remote.supervisor import Limits, Supervisor
from rlframe.remote.worker import Worker, answers, failure_of
from rlframe.run.progress import Progress
from rlframe.utils.seed import incarnation_seed
from rlframe.worker import create_serial_collector, create_serial_evaluator
from rlframe.worker.collector.remote_collection import MakeParts, Parts

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.parallel.coordinator.coordinator import Coordinator

logger = logging.getLogger('rlframe.parallel')


def make_worker(
    cfg: ExperimentConfig,
    role: str,
    name: str,
    address: Any = None,
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
    fingerprint = shared_fingerprint(cfg)
    given: Any = dict(address=address, transport=transport, name=name, fingerprint=fingerprint)
    if role == 'learner':
        return create_comm_learner(cfg.parallel.comm_learner, make_learner=learner_maker(cfg), **given)
    makers: Any = dict(make_collector=collector_maker(cfg), make_evaluator=evaluator_maker(cfg))
    collector = create_parallel_collector(cfg.parallel.collector, **makers, instance_name=name)
    return create_comm_collector(cfg.parallel.comm_collector, collector=collector, **given)


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
    progress = Progress()
    players = range(factory.spec.player_num)
    first = rank * len(players)
    policies = [build.make_policy(cfg, factory.spec, None, ('collect',), first + i) for i in players]
    faces = [policy.collect_mode for policy in policies]
    given = {'policy': faces, 'seed': cfg.seed, 'rank': rank, 'progress': progress}
    collector = create_serial_collector(cfg.policy.collect.collector, env=env, **given)
    random = [build.random_actor(cfg, policies[i], first + i) for i in players]
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
        moves = own.policy.other.commander.get('league', {}).get('eval_opening', 0)
        opened = [with_opening(*both, factory.spec, moves) for both in zip(faces, random, strict=True)]
        return Evaluation(evaluator, env, faces, random, opened)

    return make


def learner_maker(cfg: ExperimentConfig) -> Callable[[int, int], LearnerParts]:
    """Returns a function that creates a learner with its policy."""

    def make(rank: int, incarnation: int) -> LearnerParts:
        own = _prepared(cfg, 0, 0)
        policy = build.make_policy(own, build.make_factory(own).spec)
        learner = build.make_learner(own, policy, make_learners(own, policy))
        return LearnerParts(learner, policy.collect_mode, policy.command_mode)

    return make


def worker_config(cfg: ExperimentConfig, server: Server) -> ExperimentConfig:
    """Returns the config for workers that this process starts, with what they need to connect to a server."""
    own = copy.deepcopy(cfg)
    for section in (own.parallel.comm_collector, own.parallel.comm_learner):
        section['transport'] = {**server.worker_options(), **section.get('transport', {})}
    return own


def _prepared(cfg: ExperimentConfig, rank: int, incarnation: int) -> ExperimentConfig:
    """Prepares this process for a config, and returns the copy for a worker: a replaced one has another seed."""
    own = copy.deepcopy(cfg)
    own.seed = incarnation_seed(cfg.seed, rank, incarnation)
    build.prepare(own)
    return own


class RoleWorker(Worker):
    """Worker that holds a comm collector or a comm learner."""

    _is_stopped = False

    @answers
    def launch(self) -> int:
        """Answers at once, with the process: ``run`` creates what it holds."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self.stop())
        return os.getpid()

    def run(self) -> str:
        """Works until the coordinator or ``stop`` ends it; returns how it ended, empty if without an error."""
        try:
            self._parts = self._made()
            if self._is_stopped:
                self._parts.stop()
            self._parts.run()
        except Exception as error:  # whatever it is, the run is told
            failure = failure_of(error)
            if not isinstance(error, RLFrameError):
                logger.error('%s', failure.trace)
            return ' '.join(failure.text.split())
        return ''

    def stop(self) -> None:
        self._is_stopped = True
        if self._parts is not None:
            self._parts.stop()

    @answers
    def close(self) -> None:
        """Ends the work, and waits until it has ended."""
        self.stop()
        if self._parts is not None:
            self._parts.close()


class Launcher(Place):
    """The place of the workers of a run.

    Args:
        cfg: The config of the workers.
        server: The coordinator's end of the transport, which has started.
        seats: Role and name of each worker; one that replaces another has the other's name.
    """

    components = REGISTRIES

    def __init__(self, cfg: ExperimentConfig, server: Server, seats: Sequence[tuple[str, str]]) -> None:
        super().__init__(RoleWorker, names=[name for _, name in seats])
        self.cfg = cfg
        self.server = server
        self.seats = seats

    @property
    def address(self) -> Any:
        """What a worker reaches the coordinator by."""
        return self.server.address

    def maker(self) -> Callable[[int, int], Any]:
        """Returns a function that creates a worker where it runs, from its rank and incarnation."""
        cfg = self.cfg  # by itself, as what serves the transport cannot be sent
        seats = self.seats
        address = self.address
        return lambda rank, incarnation: make_worker(cfg, *seats[rank], address)


@LAUNCHER_REGISTRY.register('in_process')
class ThreadLauncher(Launcher, ThreadPlace):
    """Runs workers as threads."""

    @property
    def address(self) -> Server:
        return self.server


@LAUNCHER_REGISTRY.register('flask_fs')
class ProcessLauncher(Launcher, ChildPlace):
    """Runs workers as processes of this machine; what they print goes to the log."""


class Crew:
    """Starts the workers of a run, and replaces those that end early.

    Args:
        launcher: Their place.
        coordinator: Is told at once of those that ended.
        max_restarts: Replacements of each worker within the window; after more deaths the run ends.
        window: Seconds.
        grace: Seconds that a lost worker, frozen for example, has to come back before it is replaced.
    """

    def __init__(
        self, launcher: Launcher, coordinator: Coordinator, max_restarts: int, window: float, grace: float
    ) -> None:
        self._coordinator, self._grace = coordinator, grace
        self._seats = launcher.seats
        limits = Limits(restarts=max_restarts, each=True, window=window, where='parallel.max_restarts')
        remedy = 'The log of the run has its last output.'
        self._supervisor = Supervisor(launcher, launcher.maker(), len(self._seats), limits, remedy)

    @property
    def restarts(self) -> int:
        """Number of replacements so far."""
        return self._supervisor.restarts

    def start(self) -> None:
        """Starts all workers, without waiting until they have joined."""
        self._supervisor.begin()
        for rank in self._supervisor.ranks:
            self._supervisor.ask(rank, 'run')

    def look(self) -> None:
        """Takes note of workers that ended or were lost, and replaces them.

        Raises:
            WorkerLostError: If one ended too often; with how it ended.
        """
        # workers that died or left early
        while (call := self._supervisor.poll()) is not None:
            how = call.lost or call.value or 'it ended before the run did'
            self._coordinator.lose(*self._seats[call.rank], how)
            if not call.lost:
                self._supervisor.lose(call.rank, how)
            self._supervisor.ask(call.rank, 'run')
        # workers that do not answer
        workers = self._coordinator.workers
        for rank, seat in enumerate(self._seats):
            if workers.lost_for(*seat) > self._grace:
                self._supervisor.lose(rank, f'it did not come back within {self._grace:g} s')
            else:
                self._coordinator.expect(*seat)

    def end(self) -> None:
        """Ends all workers, at the same time; may be called twice."""
        for call in self._supervisor.calls:
            if call.lost:
                self._coordinator.lose(*self._seats[call.rank], call.lost)
        self._supervisor.close()
