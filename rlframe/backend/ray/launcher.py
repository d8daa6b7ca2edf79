"""ActorLauncher: starts the workers of a parallel run as Ray actors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ray

from rlframe.backend.ray.place import RayPlace
from rlframe.backend.ray.session import FREE_SECONDS, actor_resources
from rlframe.errors import ResourceError
from rlframe.parallel.roles import Launcher, make_worker
from rlframe.registry import LAUNCHER_REGISTRY

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig


logger = logging.getLogger('rlframe.ray')

SECTIONS = {'collector': 'comm_collector', 'learner': 'comm_learner'}
"""Sections of ``parallel`` with the options of each role."""
THREADS = 3
"""Calls of an actor at the same time: it works in one, and is asked to stop in another."""


@LAUNCHER_REGISTRY.register('ray')
class ActorLauncher(Launcher, RayPlace):
    """Runs workers as Ray actors, on any node of the cluster."""

    lifetime = {'max_restarts': 0, 'max_concurrency': THREADS}

    def maker(self) -> Callable[[int, int], Any]:
        cfg = self.cfg
        seats = self.seats
        address = self.address

        def make(rank: int, incarnation: int) -> Any:
            if not ray.get_gpu_ids():
                cfg.policy.device, cfg.policy.cuda = 'cpu', None
            return make_worker(cfg, *seats[rank], address)

        return make

    def reserve(self, ranks: Sequence[int], own: Sequence[Any] = ()) -> None:
        if any(self.cfg.parallel[section].num_cpus is None for section in SECTIONS.values()):
            try:
                self._reserve(ranks, 1.0, 0.0)
                return
            except ResourceError as error:
                logger.info(
                    'the workers share the cores, as Ray does not have one for each: %s', error.message
                )
        self._reserve(ranks, 0.0, FREE_SECONDS)

    def _reserve(self, ranks: Sequence[int], cpus: float, wait_s: float) -> None:
        options = {rank: _resources(self.seats[rank][0], self.cfg, cpus) for rank in ranks}
        demands = [actor_resources(own) for own in options.values()]
        self._session.require(demands, 'parallel.comm_collector.num_cpus', wait_s)
        self._options |= options


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
    there: Any = ray.cluster_resources()  # type: ignore[no-untyped-call]  # of Ray
    is_wanted = bool(cuda) or name.startswith('cuda') or there.get('GPU', 0.0) >= 1.0
    return float(count) if is_wanted else 0.0
