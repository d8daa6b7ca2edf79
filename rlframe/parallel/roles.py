"""The roles of parallel mode: makes a worker from a config, runs it in a process of its own, and starts and replaces such workers."""

from __future__ import annotations

import copy
import logging
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

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
from rlframe.parallel.comm_worker import CommWorker
from rlframe.parallel.transport.answering import Server
from rlframe.parallel.transport.base import Transport
from rlframe.pipeline import build
from rlframe.pipeline.learner_aggregator import make_learners
from rlframe.policy.parts.random_policy import random_opponent, with_opening
from rlframe.registry import LAUNCHER_REGISTRY
from rlframe.remote.supervisor import Losses
from rlframe.run.child_process import ChildProcess
from rlframe.run.progress import Progress
from rlframe.utils.seed import incarnation_seed
from rlframe.utils.serialize import from_parent, to_child
from rlframe.worker import create_serial_collector, create_serial_evaluator
from rlframe.worker.collector.remote_collection import MakeParts, Parts

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.parallel.coordinator.coordinator import Coordinator


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


def main(role: str, name: str, address: str) -> None:
    """Works until the coordinator or SIGTERM ends it; then ends this process."""
    try:
        cfg = from_parent(sys.stdin.buffer.read())
        worker = make_worker(cfg, role, name, address)
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()
    except RLFrameError as error:
        sys.stderr.write(f'rlframe: {type(error).__name__}: {" ".join(str(error).split())}\n')
        sys.exit(1)


class Launched(Protocol):
    """A worker that was started, such as a ``ChildProcess``."""

    @property
    def ended(self) -> str | None:
        """None while it runs; then how it ended, in words: empty if it left without an error."""

    def end(self, seconds: float) -> None:
        """Asks it to end, and kills it after these seconds; may be called twice."""


class Launcher(ABC):
    """Starts the workers of a run.

    Args:
        cfg: The config of the workers.
        server: The coordinator's end of the transport, which has started.
    """

    def __init__(self, cfg: ExperimentConfig, server: Server) -> None:
        self._cfg, self._server = cfg, server

    @abstractmethod
    def launch(self, role: str, name: str) -> Launched:
        """Starts a worker, without waiting until it has joined; one that replaces another has the other's name."""

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Releases what the launcher itself holds, after all its workers have ended; may be called twice."""


logger = logging.getLogger('rlframe.parallel')

PAUSE = 1.0
"""Seconds before a worker that died is replaced."""
LEAVE_SECONDS = 5.0
"""Seconds that workers get to end when they are told to by a signal."""


class Crew:
    """Starts workers, and starts them again if they end before the run is over.

    Args:
        launcher: Starts them.
        coordinator: Is told at once of those that ended.
        max_restarts: Replacements of each worker within the window; after more deaths the run ends.
        window: Seconds.
        grace: Seconds that a lost worker, frozen for example, has to come back before it is replaced.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        launcher: Launcher,
        coordinator: Coordinator,
        max_restarts: int,
        window: float,
        grace: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._launcher, self._coordinator = launcher, coordinator
        self._max_restarts, self._window, self._grace = max_restarts, window, grace
        self._clock = clock
        self._losses: dict[str, Losses] = {}
        self._roles: dict[str, str] = {}
        self.members: dict[str, Launched] = {}
        """The workers by name; those that ended stay until they are replaced."""
        self.restarts = 0
        """Number of replacements so far."""
        self._due: dict[str, float] = {}  # when a replacement is started, by name

    def start(self, counts: Mapping[str, int]) -> None:
        """Starts as many workers of each role."""
        for role, count in counts.items():
            for name in [role] if count == 1 else [f'{role}-{i}' for i in range(count)]:
                self._roles[name] = role
                self._losses[name] = Losses(
                    self._max_restarts,
                    self._window,
                    'parallel.max_restarts',
                    'The log of the run has its last output.',
                )
                self.members[name] = self._launcher.launch(role, name)

    def look(self) -> None:
        """Takes note of workers that ended or were lost, and replaces them.

        Raises:
            WorkerLostError: If one ended too often; with how it ended.
        """
        for name, member in self.members.items():
            role = self._roles[name]
            if name in self._due:
                if self._clock() >= self._due[name]:
                    member.end(0.0)
                    del self._due[name]
                    self.restarts += 1
                    self.members[name] = self._launcher.launch(role, name)
            elif (how := member.ended) is not None:
                self._coordinator.lose(role, name, how or 'it ended before the run did')
                self._plan(name, how or 'it ended before the run did')
            elif self._coordinator.workers.lost_for(role, name) > self._grace:
                member.end(0.0)
                self._coordinator.workers.forget_loss(role, name)
                self._plan(name, f'it was lost and did not come back within {self._grace:g} s')
            else:
                self._coordinator.expect(role, name)

    def _plan(self, name: str, how: str) -> None:
        """Decides when a worker is replaced."""
        now = self._clock()
        self._losses[name].add(f'{name} ended: {how}', now)
        logger.warning('%s ended (%s); it is started again in %.1f s', name, how, PAUSE)
        self._due[name] = now + PAUSE

    def end(self) -> None:
        """Ends all workers, at the same time; may be called twice."""
        with ThreadPoolExecutor(max(len(self.members), 1), 'rlframe-end') as pool:
            list(pool.map(_end, self.members.values()))  # raises what they raise
        self._launcher.close()


def _end(member: Launched) -> None:
    member.end(LEAVE_SECONDS if member.ended is None else 0.0)


@LAUNCHER_REGISTRY.register('in_process')
class ThreadLauncher(Launcher):
    """Starts workers as threads."""

    def launch(self, role: str, name: str) -> Launched:
        worker: CommWorker = make_worker(self._cfg, role, name, transport=self._server.connect())
        worker.start()
        return worker


@LAUNCHER_REGISTRY.register('flask_fs')
class ProcessLauncher(Launcher):
    """Starts workers as processes of this machine; what they print goes to the log."""

    def __init__(self, cfg: ExperimentConfig, server: Server) -> None:
        super().__init__(cfg, server)
        self._config = to_child(cfg, 'config')

    def launch(self, role: str, name: str) -> ChildProcess:
        logger = logging.getLogger(f'rlframe.{role}')
        words = (role, name, self._server.address)
        said = partial(logger.info, '%s: %s', name)
        return ChildProcess(name, 'rlframe.parallel.roles', words, self._config, said)
