"""The sections of a config: its components, and the options of the run itself."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

from rlframe.registry import PARALLEL_COMMANDER_REGISTRY, REGISTRIES, Registry, is_list_of_names
from rlframe.run.checkpoint_files import CheckpointConfig
from rlframe.run.child_process import STALL_TIMEOUT
from rlframe.run.logger import LOGGERS
from rlframe.utils.every import seconds
from rlframe.utils.field import Field, ResolvedConfig, Section, fields_of, option

Tree = dict[str, Any]

PARALLEL = 'parallel'
"""Section that only configs of parallel mode have."""
LOCAL = 'local'
"""The backend of sections that name none."""
BACKENDS = {
    role: Field(LOCAL, type=str, doc=doc, may_change=role != 'replay_buffer', reaches='process')
    for role, doc in {
        'collector': "place where envs are stepped: 'local' is this process; 'process' are child processes and 'ray' actors, each with"
        ' envs and a policy of its own',
        'evaluator': "place where the policy is evaluated: 'local' is this process, and training waits; 'process' is a child and 'ray' an"
        ' actor, while training continues',
        'replay_buffer': "place where transitions are kept: 'local' is this process, 'ray' are actors, each with a shard of them",
    }.items()
}
"""The option that names the backend, of each role."""
IMPORT_NAMES = Field(
    [],
    doc='modules to import, so that they register their components',
    check=lambda names: '' if is_list_of_names(names) else 'a list of module names',
    reaches='code',
)

HOOKS = 'hooks'
"""Section of the hooks of a run, with a section for each."""
REWARD_MODELS = 'reward_model'
"""Section of the reward models of a run, with a section for each."""
EVERY_RUN = ('doctor',)
"""Hooks that a run has unless they are switched off."""
LOOPBACK = ('127.0.0.1', 'localhost', '::1')
"""Hosts that only this machine reaches."""


@dataclasses.dataclass(frozen=True)
class Component:
    """A component of an experiment whose class the config chooses."""

    name: str
    """Its section in ``create_config`` and its key in ``registry.REGISTRIES``."""
    path: tuple[str, ...]
    """Its section in the merged tree."""
    default: str | None
    """The default class."""
    may_change: bool = False
    """Whether a resumed run may have another class."""
    own_registry: Registry[Any] | None = None
    """Its registry, if another than that of its name."""

    @property
    def registry(self) -> Registry[Any]:
        """Registry of its classes."""
        return REGISTRIES[self.name] if self.own_registry is None else self.own_registry

    @property
    def key(self) -> str:
        """Dotted key of its section in the merged tree."""
        return '.'.join(self.path)


COMPONENTS = (
    Component('env', ('env',), 'gym'),
    Component('env_manager', ('env', 'manager'), 'base'),
    Component('policy', ('policy',), None),
    Component('learner', ('policy', 'learn', 'learner'), 'base'),
    Component('collector', ('policy', 'collect', 'collector'), 'sample'),
    Component('evaluator', ('policy', 'eval', 'evaluator'), 'interaction'),
    Component('commander', ('policy', 'other', 'commander'), 'base'),
    Component('replay_buffer', ('policy', 'other', 'replay_buffer'), 'advanced'),
)
"""Sections of ``create_config`` in serial mode, outer ones before those inside them."""


PARALLEL_ONLY = (
    Component('comm_collector', (PARALLEL, 'comm_collector'), 'flask_fs', may_change=True),
    Component('comm_learner', (PARALLEL, 'comm_learner'), 'flask_fs', may_change=True),
    Component('parallel_collector', (PARALLEL, 'collector'), 'zergling'),
)
"""Sections of ``create_config`` that parallel mode adds."""

_COMMANDER = Component(
    'commander', ('policy', 'other', 'commander'), 'solo', own_registry=PARALLEL_COMMANDER_REGISTRY
)

IN_PARALLEL = (*(_COMMANDER if part.name == 'commander' else part for part in COMPONENTS), *PARALLEL_ONLY)
"""Sections of ``create_config`` in parallel mode, with its commanders."""

ALL_COMPONENTS = (*COMPONENTS, *PARALLEL_ONLY)
"""Every section of ``create_config``, in the order of ``COMPONENTS``."""

SECTIONS = frozenset(part.path[:depth] for part in ALL_COMPONENTS for depth in range(1, len(part.path) + 1))
"""Sections that do not depend on the classes."""

ALIASES = {part.name: part.key for part in ALL_COMPONENTS if part.name != part.key}
"""Short starts of an override's key: ``collector.`` for ``policy.collect.collector.``."""

ROLES = {
    part.name: part.path for part in COMPONENTS if part.name in ('collector', 'evaluator', 'replay_buffer')
}
"""Components that run in a backend, with their sections."""


class ComponentSection(ResolvedConfig):
    """Section of a component, such as ``env.manager``."""

    type: str


class EnvSection(ResolvedConfig):
    """Section ``env``."""

    type: str
    collector_env_num: int
    evaluator_env_num: int
    manager: ComponentSection


class LearnSection(ResolvedConfig):
    """Section ``policy.learn``."""

    batch_size: int
    update_per_collect: int
    learner: ResolvedConfig


class CollectorSection(ResolvedConfig):
    """Section ``policy.collect.collector``."""

    type: str
    backend: str
    collect_print_freq: int | str | None
    num_collectors: int
    sync: bool


class CollectSection(ResolvedConfig):
    """Section ``policy.collect``."""

    n_sample: int | None
    n_episode: int | None
    collector: CollectorSection


class EvaluatorSection(ResolvedConfig):
    """Section ``policy.eval.evaluator``."""

    type: str
    backend: str
    max_episode_len: int | None
    remote_config: dict[str, Any]


class EvalSection(ResolvedConfig):
    """Section ``policy.eval``."""

    evaluator: EvaluatorSection


class OtherSection(ResolvedConfig):
    """Section ``policy.other``."""

    replay_buffer: ResolvedConfig | None
    commander: ResolvedConfig


class PolicySection(ResolvedConfig):
    """Section ``policy``."""

    type: str
    on_policy: bool
    device: str
    cuda: bool | None
    init_from: str | None
    random_collect_size: int
    model: ResolvedConfig
    learn: LearnSection
    collect: CollectSection
    eval: EvalSection
    other: OtherSection


def _check_exp_name(name: str) -> str:
    if re.fullmatch(r'[A-Za-z0-9_-][A-Za-z0-9._-]*', name):
        return ''
    return 'a name of the allowed characters A-Z a-z 0-9 . _ - that does not start with a dot'


class TopLevelConfig(Section):
    """Options of the run itself."""

    exp_name: str = option('default_experiment', doc='name of the run folder', check=_check_exp_name)
    seed: int | None = option(0, range='[0, 4294967296)', doc='None: drawn at random and saved in the config')
    max_env_step: int = option(
        10**10,
        range='[1, inf)',
        unit='env steps',
        doc='the run ends after the round that reaches it',
        may_change=True,
    )
    max_train_iter: int = option(
        10**10,
        range='[1, inf)',
        unit='train iterations',
        doc='the run ends when it is reached',
        may_change=True,
    )
    num_threads: int = option(
        1, range='[1, inf)', unit='threads', doc="torch's intra-op threads", may_change=True
    )
    tag_style: Literal['sb3', 'di'] = option(
        'sb3', doc='framework whose names the logged scalars carry', may_change=True
    )
    loggers: list[Any] = option(LOGGERS)
    import_names: list[str] = option(IMPORT_NAMES)
    stall_timeout: float | None = option(STALL_TIMEOUT)
    checkpoint: CheckpointConfig


TOP = fields_of(TopLevelConfig)


class CoordinatorConfig(Section):
    """Options of ``Coordinator``."""

    beat_interval: float = seconds(1.0, 'interval between two signs of life of a worker')
    worker_deadline: float = seconds(15.0, 'time of silence after which a worker counts as lost')
    role_deadline: float = seconds(
        120.0,
        'time without any collector, or without any learner, after which the run ends; workers that -m parallel started are'
        ' waited for while they run',
    )
    wait: float = seconds(0.05, 'pause before a worker asks again if there is nothing to do or no data yet')
    stall_deadline: float = seconds(
        120.0, 'time of a task without a step or an update after which its worker counts as lost'
    )
    state_interval: float = seconds(
        30.0,
        'interval between two states of the learner that are kept for one that may have to take its place',
    )
    max_updates_due: int | None = option(
        None,
        range='[0, inf)',
        unit='updates',
        doc='updates that the learner may be behind before collectors wait; None: those of four parts',
        may_change=True,
    )
    max_staleness: int | None = option(
        None,
        range='[0, inf)',
        unit='train iterations',
        doc='greatest age of the weights of fresh data when the learner gets them; older parts are discarded and counted; None: any.'
        ' Rows in a replay buffer have replay_buffer.max_staleness',
        may_change=True,
    )


class CoordinatorSection(CoordinatorConfig):
    """Section ``parallel.coordinator``: the options of the coordinator, and of its server."""

    host: str = option(
        '127.0.0.1',
        doc='address that the coordinator listens on; one that other machines reach needs a token',
        may_change=True,
        reaches='network',
        harmless=lambda host: isinstance(host, str) and host in LOOPBACK,
    )
    port: int | None = option(
        None,
        range='[0, 65535]',
        doc='port that it listens on; None: a free one with -m parallel, 7235 with -m coordinator',
        may_change=True,
        reaches='network',
    )
    transport: dict[str, Any] = option(
        {}, doc="further options of the transport's server, such as token", may_change=True, reaches='network'
    )


class ParallelSection(Section):
    """Section ``parallel``, with the sections of its components."""

    collector_num: int = option(
        2,
        range='[1, inf)',
        unit='collectors',
        doc='number of collectors that -m parallel starts on this machine',
        may_change=True,
    )
    max_restarts: int = option(
        3,
        range='[0, inf)',
        unit='restarts',
        doc='most restarts of a worker that -m parallel started, within restart_window',
        may_change=True,
    )
    restart_window: float = option(
        600.0,
        range='(0, inf)',
        unit='seconds',
        doc='period in which restarts of a worker are counted',
        may_change=True,
    )
    close_timeout: float = option(
        20.0,
        range='(0, inf)',
        unit='seconds',
        doc='time for the workers to leave at the end; then they are killed',
        may_change=True,
    )
    coordinator: CoordinatorSection
    collector: ComponentSection
    comm_collector: ComponentSection
    comm_learner: ComponentSection


PARALLEL_FIELDS = fields_of(ParallelSection)


class ExperimentConfig(TopLevelConfig):
    """A whole config, as ``compile_config`` returns it."""

    seed: int
    hooks: ResolvedConfig
    env: EnvSection
    policy: PolicySection
    parallel: ParallelSection
