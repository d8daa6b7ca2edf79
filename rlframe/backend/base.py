"""Backend: the interface of all backends, and the backend in this process."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlframe.data.dataset import COLLECTOR_DATA, check_source
from rlframe.errors import ConfigError
from rlframe.pipeline import build
from rlframe.pipeline.given_data import check_data, reads_rewards
from rlframe.registry import BACKEND_REGISTRY, SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.field import Configurable, Options, option
from rlframe.utils.seed import incarnation_seed
from rlframe.utils.serialize import on_cpu
from rlframe.worker.collector.remote_collection import Parts

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.envs import EnvFactory
    from rlframe.policy import Policy
    from rlframe.remote.supervisor import Supervisor
    from rlframe.worker import IBuffer, ISerialCollector, ISerialEvaluator

COLLECTOR = 'policy.collect.collector'
"""Section of the collector."""
EVALUATOR = 'policy.eval.evaluator'
"""Section of the evaluator."""
OVERLAP: int = option(
    0,
    range='[0, 1]',
    unit='rounds',
    doc='rounds that are collected ahead, while the policy learns from the one before: with weights of exactly one version before',
    may_change=True,
)
"""Option ``overlap`` of every collector."""
INFERENCE = 'policy.collect.inference'
"""Option that says where the network acts."""


def is_central(cfg: ExperimentConfig) -> bool:
    """Whether one server acts for all collectors."""
    return bool(cfg.policy.collect.get('inference') == 'central')


class MakeCollector:
    """Creates the collector in an actor from a compiled config; that of rank 0 equals the collector of a run without actors.

    An env that ``factory`` has registered only in this process works in actors too.
    """

    def __init__(self, cfg: ExperimentConfig, factory: Any) -> None:
        self._cfg, self.factory = cfg, factory
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> Parts:
        """Creates envs, policy and collector."""
        cfg = actor_config(self._cfg, rank, incarnation)
        section = self._cfg.policy.collect.collector
        # if it acts while the trained policy learns, that policy would draw the same numbers
        policy_rank = rank if section.get('sync', True) and not section.get('overlap') else rank + 1
        build.prepare(cfg)
        return build.make_collector_parts(cfg, self.factory, rank, policy_rank, self.model)


def actor_config(cfg: ExperimentConfig, rank: int, incarnation: int) -> ExperimentConfig:
    """Returns the config for an actor of a rank, in which nothing is logged or passed on to further actors.

    ``incarnation`` is the number of actors lost in its place before.
    """
    cfg = copy.deepcopy(cfg)
    section = cfg.policy.collect.collector
    own = build.get_backend_cls(section).collector_resources(section)[rank : rank + 1]
    if is_central(cfg) or not any('GPU' in each for each in own):
        cfg.policy.device, cfg.policy.cuda = 'cpu', None
    section.backend, section.collect_print_freq = 'local', None
    cfg.policy.init_from = None  # weights come from the driver
    cfg.seed = incarnation_seed(cfg.seed, rank, incarnation)
    return cfg


class Backend(Configurable):
    """Runs collection or evaluation, and returns its results.

    A run creates one backend for its collector, one for its evaluator and one for its replay buffer. ``open_collector``,
    ``open_evaluator`` or ``open_buffer``, which acquires resources, is called before the policy and the run folder exist,
    ``make_collector``, ``make_evaluator`` or ``make_buffer`` afterwards, all with the whole config of the run.
    """

    config: dict[str, Any] = dict(collector={}, evaluator={}, replay_buffer={})
    """Options that a config may set under ``policy.collect.collector``, ``policy.eval.evaluator`` and
    ``policy.other.replay_buffer``, in addition to those of the collector, evaluator or replay buffer."""
    rules: Mapping[str, Callable[[Mapping[str, Any]], list[ConfigError]]] = {}
    """For a role (``'collector'``, ``'evaluator'``, ``'replay_buffer'``), what returns the mistakes of a config that has it here,
    beyond those of single options; it gets the dotted keys of the config and their values, without those that are invalid."""

    def __init__(self, factory: EnvFactory) -> None:
        self.factory = factory

    # running

    @abstractmethod
    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Acquires what the collector needs, such as envs."""

    @abstractmethod
    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Acquires what the evaluator needs, such as envs."""

    @abstractmethod
    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        """Creates the collector for the policy that is trained in this process.

        ``common`` are further arguments of every collector: ``tb_logger``, ``exp_name``, ``progress``.
        """

    @abstractmethod
    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        """Creates the evaluator for the policy that is trained in this process.

        ``common`` are further arguments of every evaluator: ``tb_logger``, ``exp_name``, ``seed``, ``purpose``.
        """

    def open_buffer(self, cfg: ExperimentConfig) -> None:
        """Acquires what the replay buffer needs; by default nothing."""

    def make_buffer(self, cfg: ExperimentConfig, **common: Any) -> IBuffer | None:
        """Creates the replay buffer, by default in this process; None for an on-policy policy.

        ``common`` are further arguments of every replay buffer: ``tb_logger``, ``exp_name``.
        """
        return build.make_buffer(cfg, self.factory, **common)

    @abstractmethod
    def close(self) -> None:
        """Releases everything that was acquired; may be called twice, and after ``open_...`` failed."""

    def summary(self, cfg: ExperimentConfig) -> str:
        """Says in a few words where training samples come from."""
        manager = cfg.env.manager.type
        return f'{cfg.env.collector_env_num} envs of {self.factory.spec.name} ({manager})'

    # facts about a config, known before anything runs

    @classmethod
    def options_of(cls, role: str) -> Options:
        """Returns the options for a role: ``'collector'``, ``'evaluator'`` or ``'replay_buffer'``."""
        found: Options = cls.config_fields()[role]
        return found

    @classmethod
    def keeps_here(cls, section: Mapping[str, Any]) -> bool:
        """Whether a replay buffer with these options keeps transitions in the memory of this machine."""
        return True

    @classmethod
    def collector_num(cls, section: Mapping[str, Any]) -> int:
        """Returns the number of collectors that share the target of a call, with these options."""
        return 1

    @classmethod
    def collector_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        """Returns the resources of a Ray cluster that each collecting process takes, by names such as ``'CPU'``."""
        return []

    @classmethod
    def evaluator_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        """Returns the resources of a Ray cluster that each evaluating process takes, by names such as ``'CPU'``."""
        return []


def collector_in(
    workers: Supervisor, cfg: ExperimentConfig, policy: Policy, common: Mapping[str, Any]
) -> ISerialCollector:
    """Returns the collector that collects with workers, which it starts; see ``Backend.make_collector``."""
    from rlframe.backend.collector import WorkersCollector

    workers.make.model = on_cpu(policy.get_attribute('given_model'))
    section: Any = cfg.policy.collect.collector  # with the options of ``WorkersConfig``
    kind = SERIAL_COLLECTOR_REGISTRY.get_cls(section)
    given = {name: common[name] for name in ('tb_logger', 'instance_name', 'progress') if name in common}
    return WorkersCollector(kind, section, workers, policy.collect_mode, **given)


@BACKEND_REGISTRY.register('local')
class LocalBackend(Backend):
    """Collects and evaluates in this process: in envs, or from recorded data."""

    config = dict(collector=dict(overlap=OVERLAP), evaluator={})
    env: Any = None
    """The envs; None if there are data instead."""
    data: Any = None
    """The recorded data of a collector or an evaluator that steps no envs."""
    _child: Supervisor | None = None

    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Creates the envs, or opens the recorded data of a collector that steps none; with ``overlap``, in a child."""
        section = cfg.policy.collect.collector
        kind = SERIAL_COLLECTOR_REGISTRY.get_cls(section)
        if section.get('overlap'):
            self._child = self._made_child(cfg)
            return
        self.data = kind.open_data(section) if hasattr(kind, 'open_data') else None
        if self.data is None:
            self.env = build.make_env(cfg, self.factory, cfg.env.collector_env_num)
        else:
            check_source(self.data, self.factory.spec, COLLECTOR_DATA)
            if reads_rewards(cfg.policy.type):
                self.data.check_ends(self.factory.spec, COLLECTOR_DATA)
            check_data(self.data, cfg.policy.type, cfg.policy.learn.batch_size, COLLECTOR_DATA)

    def _made_child(self, cfg: ExperimentConfig) -> Supervisor:
        """Returns the supervisor of the process that collects ahead; its loss ends the run."""
        from rlframe.backend.worker import CollectorWorker
        from rlframe.remote.places import ChildPlace
        from rlframe.remote.supervisor import Limits, Supervisor

        remedy = 'Resume the run. Is there enough memory? The log of the run has its last output.'
        make = MakeCollector(cfg, self.factory)
        place = ChildPlace(CollectorWorker)
        place.tag = ''  # records of a run are those of a collector in this process
        return Supervisor(place, make, 1, Limits(where=f'{COLLECTOR}.overlap'), remedy)

    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Creates the envs, or opens the recorded data of an evaluator that plays no episodes."""
        section = cfg.policy.eval.evaluator
        kind = SERIAL_EVALUATOR_REGISTRY.get_cls(section)
        if hasattr(kind, 'open_data'):
            self.data = kind.open_data(section, self.factory.spec)
        else:
            render_mode = 'rgb_array' if build.films(cfg) else None
            self.env = build.make_eval_env(cfg, self.factory, cfg.env.evaluator_env_num, render_mode)

    @property
    def _envs_or_data(self) -> dict[str, Any]:
        """The opened envs or data, as an argument of a constructor."""
        return {'env': self.env} if self.data is None else {'data': self.data}

    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        section = cfg.policy.collect.collector
        if self._child is not None:
            return collector_in(self._child, cfg, policy, common)
        given = {'policy': policy.collect_mode, 'seed': cfg.seed, **common}
        return SERIAL_COLLECTOR_REGISTRY.build(section, cfg=section, **self._envs_or_data, **given)

    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        section = cfg.policy.eval.evaluator
        seed = common.get('seed', cfg.seed)
        acting = build.with_opponents(cfg, policy.eval_mode, self.factory.spec, seed)
        return SERIAL_EVALUATOR_REGISTRY.build(
            section, cfg=section, policy=acting, **self._envs_or_data, **{'seed': seed, **common}
        )

    def close(self) -> None:
        for opened in (self.env, self.data, self._child):
            if opened is not None:
                opened.close()

    def summary(self, cfg: ExperimentConfig) -> str:
        if cfg.policy.collect.collector.get('data') is not None:
            return f'recorded data of {self.factory.spec.name}'
        return super().summary(cfg) + (', a round ahead' if self._child is not None else '')
