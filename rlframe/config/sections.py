"""Types of the options that code outside a component reads: views of a compiled config.

A view is a subclass of ``ResolvedConfig`` with annotations and without values. At run time every section is a
``ResolvedConfig``; type checkers know the keys that a view declares, and no others. A component has a view of its own
options beside its ``config``. Keys that only some classes have are read with ``get``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from rlframe.utils.coordinator_options import CoordinatorConfig
from rlframe.utils.resolved_config import ResolvedConfig

T = TypeVar('T')


class Only(NamedTuple):
    """Marks an option that only some configs have."""

    key: str
    """Dotted key of another option."""
    value: Any
    """Value of that option if the config has this one."""


OffPolicy = Annotated[T, Only('policy.on_policy', False)]
"""An option of policies that learn from a replay buffer."""
RayCollector = Annotated[T, Only('policy.collect.collector.backend', 'ray')]
"""An option of collectors in Ray actors."""
RayEvaluator = Annotated[T, Only('policy.eval.evaluator.backend', 'ray')]
"""An option of evaluators in Ray actors."""
Interaction = Annotated[T, Only('policy.eval.evaluator.type', 'interaction')]
"""An option of evaluators that play episodes."""
InParallel = Annotated[T, 'parallel']
"""An option that only configs of parallel mode have."""
Drawn = Annotated[T, 'drawn']
"""An option whose default None is replaced by ``compile_config``."""


class ManagerSection(ResolvedConfig):
    """Section ``env.manager``."""

    type: str


class EnvSection(ResolvedConfig):
    """Section ``env``."""

    type: str
    collector_env_num: int
    evaluator_env_num: int
    manager: ManagerSection


class LearnSection(ResolvedConfig):
    """Section ``policy.learn``."""

    batch_size: OffPolicy[int]
    update_per_collect: OffPolicy[int]
    learner: ResolvedConfig


class CollectorSection(ResolvedConfig):
    """Section ``policy.collect.collector``."""

    type: str
    backend: str
    collect_print_freq: RayCollector[int | None]
    num_collectors: RayCollector[int]
    sync: RayCollector[bool]


class CollectSection(ResolvedConfig):
    """Section ``policy.collect``."""

    n_sample: int | None
    n_episode: int | None
    collector: CollectorSection


class EvaluatorSection(ResolvedConfig):
    """Section ``policy.eval.evaluator``."""

    type: str
    backend: str
    max_episode_len: Interaction[int | None]
    remote_config: RayEvaluator[dict[str, Any]]


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


class CoordinatorSection(CoordinatorConfig):
    """Section ``parallel.coordinator``: the options of the coordinator, and of its server."""

    host: str
    port: int | None
    transport: dict[str, Any]


class WorkerSection(ResolvedConfig):
    """Section of a component of parallel mode, such as ``parallel.collector``."""

    type: str


class ParallelSection(ResolvedConfig):
    """Section ``parallel``."""

    collector_num: int
    learner_num: int
    path_data: str | None
    max_restarts: int
    restart_window: float
    close_timeout: float
    coordinator: CoordinatorSection
    collector: WorkerSection
    comm_collector: WorkerSection
    comm_learner: WorkerSection


class ExperimentConfig(ResolvedConfig):
    """A whole config, as ``compile_config`` returns it."""

    exp_name: str
    seed: Drawn[int]
    max_env_step: int
    max_train_iter: int
    num_threads: int
    tag_style: Literal['sb3', 'di']
    loggers: list[Any]
    import_names: list[str]
    stall_timeout: float | None
    checkpoint: ResolvedConfig
    hooks: ResolvedConfig
    env: EnvSection
    policy: PolicySection
    parallel: InParallel[ParallelSection]
