"""ProcessBackend: collects and evaluates in child processes of this machine, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.backend.base import COLLECTOR, EVALUATOR, Backend, MakeCollector, collector_in
from rlframe.backend.options import LATER_OPTIONS, WORKER_OPTIONS, collector_errors, evaluator_errors
from rlframe.registry import BACKEND_REGISTRY
from rlframe.utils.serialize import on_cpu

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.policy import Policy
    from rlframe.remote.places import Place
    from rlframe.remote.supervisor import Supervisor
    from rlframe.remote.worker import Worker
    from rlframe.worker import ISerialCollector, ISerialEvaluator


@BACKEND_REGISTRY.register('process')
class ProcessBackend(Backend):
    """Collects and evaluates in child processes, each with its own envs and policy, which end with this one."""

    config = dict(collector=WORKER_OPTIONS, evaluator=LATER_OPTIONS)
    rules = dict(collector=collector_errors, evaluator=evaluator_errors)
    remedy = 'Is there enough memory? Do the envs answer? The log of the run has what the workers printed.'
    """What to do about losses of workers."""
    _workers: Supervisor | None = None

    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Prepares the workers, which start with the collector.

        Raises:
            SerializationError: If a part of the config cannot be sent to them; with the path to it.
        """
        from rlframe.backend.worker import CollectorWorker

        section: Any = cfg.policy.collect.collector
        make = MakeCollector(cfg, self.factory)
        self._workers = self._supervisor(CollectorWorker, COLLECTOR, section, make)

    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Prepares the worker, which starts with the evaluator; raises like ``open_collector``."""
        from rlframe.backend.evaluator import EvaluatorWorker, MakeEvaluator

        section: Any = cfg.policy.eval.evaluator
        make = MakeEvaluator(cfg, self.factory)
        self._workers = self._supervisor(EvaluatorWorker, EVALUATOR, section, make)

    def _supervisor(self, kind: type[Worker], where: str, section: Any, make: Any) -> Supervisor:
        """Returns the supervisor of workers that have not started.

        Args:
            kind: Class of the workers.
            where: Config key of their section.
            section: Their options.
            make: Creates the parts in them.
        """
        from rlframe.remote.supervisor import Limits, Supervisor

        limits = Limits.of(section, section.get('collect_timeout', section.get('eval_timeout')), where)
        place = self._place(kind, where, section)
        return Supervisor(place, make, section.get('num_collectors', 1), limits, self.remedy)

    def _place(self, kind: type[Worker], where: str, section: Any) -> Place:
        """Returns the place of workers; for the arguments see ``_supervisor``."""
        from rlframe.remote.places import ChildPlace

        return ChildPlace(kind)

    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        assert self._workers is not None  # it was opened
        return collector_in(self._workers, cfg, policy, common)

    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        from rlframe.backend.evaluator import WorkerEvaluator

        assert self._workers is not None  # it was opened
        given = {'seed': cfg.seed, **common}
        self._workers.make.given = {name: given[name] for name in ('seed', 'purpose') if name in given}
        self._workers.make.model = on_cpu(policy.get_attribute('given_model'))
        self._workers.start()
        return WorkerEvaluator(cfg.policy.eval.evaluator, self._workers, policy.eval_mode, **given)

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()

    def summary(self, cfg: ExperimentConfig) -> str:
        count = cfg.policy.collect.collector.num_collectors
        return f'{count} process{"es" if count > 1 else ""} with {super().summary(cfg)} each'

    @classmethod
    def collector_num(cls, section: Mapping[str, Any]) -> int:
        number = section.get('num_collectors')
        return number if isinstance(number, int) else 1
