"""ActorLauncher: starts the workers of a parallel run as Ray actors."""

from __future__ import annotations

import copy
import logging
import sys
from typing import TYPE_CHECKING, Any

from rlframe.backend.ray.session import FREE_SECONDS, RaySession, actor_resources, cause_of, connect
from rlframe.errors import ResourceError
from rlframe.parallel.roles import Launched, Launcher, make_worker
from rlframe.parallel.transport.answering import Server
from rlframe.registry import LAUNCHER_REGISTRY
from rlframe.remote.worker import Failure, Worker, answers
from rlframe.utils.lazy import LazyModule
from rlframe.utils.serialize import to_child

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig


ray = LazyModule('ray')
logger = logging.getLogger('rlframe.ray')

SECTIONS = {'collector': 'comm_collector', 'learner': 'comm_learner'}
"""Sections of ``parallel`` with the options of each role."""
THREADS = 3
"""Calls of an actor at the same time: it works in one, and is asked to stop in another."""
FETCH_SECONDS = 5.0
"""How long the outcome of a worker that has ended may take to arrive."""


class WorkerActor(Worker):
    """Actor class that holds a comm collector or a comm learner."""

    _is_stopped = False

    @answers
    def run(self) -> None:
        """Works until the coordinator or ``stop`` ends it."""
        self._parts = self._made()
        if self._is_stopped:
            self._parts.stop()
        self._parts.run()

    def stop(self) -> None:
        """Ends the work soon."""
        self._is_stopped = True
        if self._parts is not None:
            self._parts.stop()


class LaunchedActor(Launched):
    """A worker in a Ray actor.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        actor: The actor.
    """

    def __init__(self, role: str, name: str, actor: Any) -> None:
        self.role, self.name = role, name
        self._actor = actor
        self._outcome = actor.run.remote()
        self._how: str | None = None

    @property
    def ended(self) -> str | None:
        """None while it runs; then how it ended."""
        if self._how is None and self._has_outcome(0.0):
            self._release(self._told())
        return self._how

    def end(self, seconds: float) -> None:
        """Asks it to end, and kills it and its children after these seconds; may be called twice."""
        if self.ended is None and seconds > 0 and ray.is_initialized():
            self._actor.stop.remote()
            self._has_outcome(seconds)
        if self.ended is None:
            self._release(f'killed, because it did not end within {seconds:g} s')

    def _has_outcome(self, seconds: float) -> bool:
        if not ray.is_initialized():
            return True
        return bool(ray.wait([self._outcome], timeout=seconds, fetch_local=False)[0])

    def _told(self) -> str:
        """Returns how a worker ended, in words."""
        if not ray.is_initialized():
            return 'Ray was shut down in this process'
        try:
            failure: Failure | None = ray.get(self._outcome, timeout=FETCH_SECONDS)
        except ray.exceptions.RayError as error:
            return cause_of(error)
        if failure is None:
            return ''
        logger.debug('%s: %s', self.name, failure.trace)
        return ' '.join(failure.text.split())

    def _release(self, how: str) -> None:
        """Ends the actor, with the words for its end; Ray ends what its envs started."""
        self._how = how
        self._outcome = None
        if ray.is_initialized():
            ray.kill(self._actor)


@LAUNCHER_REGISTRY.register('ray')
class ActorLauncher(Launcher):
    """Starts workers as Ray actors, on any node of the cluster.

    Raises:
        ResourceError: If the cluster lacks the resources that the options ask for.
    """

    def __init__(self, cfg: ExperimentConfig, server: Server) -> None:
        super().__init__(cfg, server)
        self._session = connect()
        try:
            self._options = _reserved(self._session, cfg)
        except BaseException:
            self._session.close()
            raise
        self._remote: Any = ray.remote(WorkerActor)

    def launch(self, role: str, name: str) -> LaunchedActor:
        given = self._config_of(role), role, name, self._server.address

        def make(*_: int) -> Any:
            return make_worker(*given)

        actor = self._remote.options(max_concurrency=THREADS, max_restarts=0, **self._options[role])
        started = actor.remote(to_child(make, 'config'), 0, 0, list(sys.path))
        return LaunchedActor(role, name, started)

    def close(self) -> None:
        """Gives the resources back; may be called twice."""
        self._session.close()

    def _config_of(self, role: str) -> ExperimentConfig:
        """Returns the config for a role: an actor without a GPU sees none."""
        if self._options[role]['num_gpus']:
            return self._cfg
        cfg = copy.deepcopy(self._cfg)
        cfg.policy.device, cfg.policy.cuda = 'cpu', None
        return cfg


def _reserved(session: RaySession, cfg: ExperimentConfig) -> dict[str, dict[str, float]]:
    """Returns the resources of a worker of each role, which are reserved for all workers."""
    parallel = cfg['parallel']
    where = 'parallel.comm_collector.num_cpus'
    counts = {'learner': 1, 'collector': parallel.collector_num}

    def reserved(cpus: float, wait_s: float = FREE_SECONDS) -> dict[str, dict[str, float]]:
        options = {role: _resources(role, cfg, cpus) for role in counts}
        demands = [actor_resources(options[role]) for role in counts for _ in range(counts[role])]
        session.require(demands, where, wait_s)
        return options

    if any(parallel[section].num_cpus is None for section in SECTIONS.values()):
        try:
            return reserved(1.0, wait_s=0.0)
        except ResourceError as error:
            logger.info('the workers share the cores, as Ray does not have one for each: %s', error.message)
    return reserved(0.0)


def _resources(role: str, cfg: ExperimentConfig, cpus: float) -> dict[str, float]:
    """Returns the resources of a worker, with these CPUs for each of its processes where the options do not say."""
    section = cfg['parallel'][SECTIONS[role]]
    count = cfg.policy.learn.get('num_learners', 1) if role == 'learner' else 1
    return {
        'num_cpus': count * cpus if section.num_cpus is None else section.num_cpus,
        'num_gpus': _gpus(role, cfg, count) if section.num_gpus is None else section.num_gpus,
    }


def _gpus(role: str, cfg: ExperimentConfig, count: int) -> float:
    """Returns the GPUs of a worker of so many processes whose options do not say."""
    name, cuda = cfg.policy.device, cfg.policy.cuda
    if role != 'learner' or cuda is False or name == 'cpu':
        return 0.0
    is_wanted = bool(cuda) or name.startswith('cuda')
    return float(count) if is_wanted or ray.cluster_resources().get('GPU', 0.0) >= 1.0 else 0.0
