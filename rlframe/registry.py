"""All registries of rlframe, with the modules of the built-in components, which are imported when they are first used."""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

from rlframe.errors import ConfigError, InterfaceError, RegistryError
from rlframe.errors import nearest as nearest
from rlframe.errors import nearest_name as nearest_name

if TYPE_CHECKING:
    from torch import nn

    from rlframe.backend import Backend
    from rlframe.envs import EnvFactory, IEnvManager
    from rlframe.parallel.roles import Launcher
    from rlframe.parallel.transport.base import Transport
    from rlframe.policy import Policy
    from rlframe.reward_model.base import RewardModel
    from rlframe.run.logger import Logger
    from rlframe.worker import (
        BaseCommCollector,
        BaseCommLearner,
        BaseLearner,
        BaseParallelCollector,
        BaseParallelCommander,
        BaseSerialCommander,
        EvalMetric,
        IBuffer,
        ISerialCollector,
        ISerialEvaluator,
        LearnerHook,
        ScheduleRule,
    )
    from rlframe.worker.hooks import RunHook

GROUP = 'rlframe.registry'
"""Group of the entry points."""
logger = logging.getLogger(GROUP)

T = TypeVar('T')
C = TypeVar('C', bound=type)

PATHS = ('policy', 'model')
"""Kinds whose names may be ``module:Class``: foreign configs are checked for them before any name is looked up."""


class Plugin(NamedTuple):
    """An entry point of an installed package, which was loaded."""

    name: str
    """Name of the entry point."""
    package: str
    """The package that declares it, and its version."""
    problem: str
    """Why it could not be loaded; empty if it was."""


class Plugins:
    """The plug-ins of this process, each loaded at most once."""

    def __init__(self) -> None:
        self._found: list[Plugin] | None = None
        self._lock = threading.RLock()

    def load(self) -> list[Plugin]:
        """Loads all plug-ins, unless that was done, and warns of each broken one, which is skipped.

        A module is imported, and a function is called without arguments.
        """
        with self._lock:
            if self._found is None:
                self._found = []  # a plug-in that looks up a name must not load the plug-ins again
                for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
                    self._found.append(_loaded(point))
            return self._found


def _loaded(point: metadata.EntryPoint) -> Plugin:
    package = f'{point.dist.name} {point.dist.version}' if point.dist is not None else 'an unknown package'
    try:
        loaded = point.load()
        if callable(loaded):
            loaded()
    except (Exception, SystemExit) as error:
        problem = ' '.join(f'{type(error).__name__}: {error}'.split())
        logger.warning('the plug-in %r of %s is skipped: %s', point.name, package, problem)
        return Plugin(point.name, package, problem)
    return Plugin(point.name, package, '')


PLUGINS = Plugins()
"""The plug-ins of this process, which all registries share."""


def is_list_of_names(names: Any) -> bool:
    """Whether a value is a list of strings, as ``import_names`` must be."""
    return isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)


def import_modules(names: Sequence[str]) -> None:
    """Imports the modules that register custom components.

    Raises:
        ConfigError: If it is not a list of names, or a module does not exist. Errors inside a module pass unchanged.
    """
    if not is_list_of_names(names):
        raise ConfigError('bad value', where='import_names', got=names, expected='a list of module names')
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + '.')):
                raise
            raise ConfigError(
                f'no module named {name!r}',
                where='import_names',
                remedy='Put its folder on PYTHONPATH, or start in that folder.',
            ) from error


def import_named(tree: dict[str, Any]) -> None:
    """Imports the modules that a config and its sections name in ``import_names``.

    Raises:
        ConfigError: If one does not exist.
    """
    for name, value in dict.items(tree):  # the values of a config count as unread
        if name == 'import_names':
            import_modules(value or [])
        elif isinstance(value, dict):
            import_named(value)


def named_object(path: str, where: str) -> Any:
    """Returns the object that ``module:name`` names.

    Raises:
        ConfigError: If there is nothing of that name.
    """
    module, _, name = path.partition(':')
    names: Iterable[str] = ()
    try:
        found = importlib.import_module(module)
        names = vars(found)
        return getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f'cannot import {path!r}: {error}.{nearest(name, names)}', where=where) from error


def with_type(cfg: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Returns a section whose type may lie under a key of DI-engine, such as ``learner_type``, with ``type``."""
    if key not in cfg:
        return cfg
    own = {name: value for name, value in cfg.items() if name != key}
    return own if 'type' in own else {**own, 'type': cfg[key]}


class Registry(Generic[T]):
    """Maps the names of one kind of component to classes, whose instances are of type ``T``.

    Args:
        kind: What the names stand for, in words, for errors.
        builtin: Maps each built-in name to the module that registers it.
        interface: ``module:Class`` of the interface that the classes implement, if any.
    """

    def __init__(self, kind: str, builtin: Mapping[str, str] | None = None, interface: str = '') -> None:
        self.kind, self.interface = kind, interface
        self._builtin = dict(builtin or {})
        self._classes: dict[str, type[T]] = {}

    @overload
    def register(
        self, name: str | None = None, module: None = None, force_overwrite: bool = False
    ) -> Callable[[C], C]: ...
    @overload
    def register(self, name: str | None, module: C, force_overwrite: bool = False) -> C: ...
    def register(
        self, name: str | None = None, module: C | None = None, force_overwrite: bool = False
    ) -> C | Callable[[C], C]:
        """Registers a class under a name; without a class, acts as a decorator.

        Args:
            name: Name in configs; by default, the name of the class.
            module: The class.
            force_overwrite: Whether to replace another class of that name, including a built-in one.

        Raises:
            RegistryError: If another class has that name; with the location of both.
        """
        if module is None:
            return lambda cls: self.register(name, cls, force_overwrite)
        name = module.__name__ if name is None else name
        if not force_overwrite:
            if self._is_replaced(name) and self._builtin[name] == module.__module__:
                return module  # a built-in class, imported after its place was taken
            self._check_free(name, module)
        self._classes[name] = module
        return module

    def _check_free(self, name: str, cls: type) -> None:
        taken = self._classes.get(name)
        if taken is None and self._builtin.get(name, cls.__module__) != cls.__module__:
            taken = self.get(name)
        if taken is not None and _place(taken) != _place(cls):
            raise RegistryError(
                f'{self.kind} {name!r} is registered twice: {_place(taken)} and {_place(cls)}',
                remedy='Give one of them another name, or replace the first by register(..., force_overwrite=True).',
            )

    def _is_replaced(self, name: str) -> bool:
        """Whether another class replaces the built-in one."""
        cls = self._classes.get(name)
        return cls is not None and self._builtin.get(name, cls.__module__) != cls.__module__

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        return sorted({*self._builtin, *self._classes})

    def query(self) -> list[str]:
        """Returns all names, sorted; DI-engine's name for ``names``."""
        return self.names()

    def query_details(self, aliases: Iterable[str] | None = None) -> dict[str, tuple[str, int]]:
        """Returns the file and the line where each class is defined; this imports the built-in ones.

        Args:
            aliases: Names to look up; by default, all.

        Raises:
            RegistryError: If a name is unknown.
        """
        names = self.names() if aliases is None else aliases
        return {name: _source(self.get(name)) for name in names}

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._builtin

    def __getitem__(self, name: str) -> type[T]:
        return self.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def registered_in(self, module: str) -> dict[str, type[T]]:
        """Returns the classes that a module has registered."""
        return {name: cls for name, cls in self._classes.items() if cls.__module__ == module}

    def is_builtin(self, name: str) -> bool:
        """Whether ``name`` is a built-in component that has not been replaced."""
        return name in self._builtin and not self._is_replaced(name)

    def name_in_any_case(self, name: str) -> str:
        """Returns the only name that differs from ``name`` in upper and lower case at most; ``name`` if there is none."""
        alike = [known for known in self.names() if known.lower() == name.lower()]
        return alike[0] if len(alike) == 1 and name not in self else name

    def get(self, name: str) -> type[T]:
        """Returns the class called ``name``.

        Raises:
            RegistryError: If the name is unknown; with the closest name and all names.
        """
        if name not in self._classes and name in self._builtin:
            module = importlib.import_module(self._builtin[name])
            if name not in self._classes:
                raise RegistryError(f'{module.__name__} does not register the {self.kind} {name!r}')
        if name not in self._classes and self.kind in PATHS and ':' in name:
            found = named_object(name, self.kind)
            if isinstance(found, type):
                return found
        if name not in self._classes:
            PLUGINS.load()
        if name not in self._classes:
            own = sorted(set(self._classes) - set(self._builtin))
            raise RegistryError(
                f'unknown {self.kind} {name!r}.{nearest(str(name), self.names())}'
                f' Registered: {sorted(self._builtin)}; imported: {own}',
                remedy='Is the module that registers it named in import_names?',
            )
        return self._classes[name]

    def check_interface(self, name: str) -> None:
        """Checks that a class has all methods of its interface; built-in classes are not checked.

        Raises:
            InterfaceError: If methods are missing; with their names.
        """
        if not self.interface or self.is_builtin(name):
            return
        module, _, interface_name = self.interface.partition(':')
        interface = getattr(importlib.import_module(module), interface_name)
        cls = self.get(name)
        missing = sorted(getattr(cls, '__abstractmethods__', ()))
        if not issubclass(cls, interface):
            defined = {name for base in cls.__mro__ for name in vars(base)}
            missing = [name for name in _methods_of(interface) if name not in defined]
        if missing:
            raise InterfaceError(
                f'{cls.__qualname__} ({_place(cls)}) lacks {", ".join(missing)} of the interface {interface_name}',
                remedy=f'docs/interfaces.md and help({module}.{interface_name}) say what each has to do.',
            )

    def get_cls(self, cfg: Mapping[str, Any] | str) -> type[T]:
        """Returns the class named by ``cfg``, or by ``cfg.type`` after importing ``cfg.import_names``."""
        if isinstance(cfg, str):
            return self.get(cfg)
        import_modules(cfg.get('import_names') or [])
        if 'type' not in cfg:
            raise RegistryError(f"the config of a {self.kind} needs a 'type'; one of {self.names()}")
        return self.get(cfg['type'])

    def build(self, cfg: str | Mapping[str, Any], /, *args: Any, **kwargs: Any) -> T:
        """Returns an instance of a class; errors of its constructor pass unchanged.

        Args:
            cfg: The name of the class, or a config whose ``type`` is that name.
            args: Arguments of its constructor.
            kwargs: Keyword arguments of its constructor.

        Raises:
            InterfaceError: If the class lacks methods of its interface.
        """
        cls = self.get_cls(cfg)
        self.check_interface(cfg if isinstance(cfg, str) else cfg['type'])
        return cls(*args, **kwargs)


def _methods_of(interface: type) -> list[str]:
    """Returns the names of the abstract and of the public methods and properties of an interface."""
    names = {
        name: value
        for base in reversed(interface.__mro__)
        for name, value in vars(base).items()
        if base.__module__.startswith('rlframe.worker')
    }
    kinds = (classmethod, property)
    public = {
        name
        for name, value in names.items()
        if not name.startswith('_') and (callable(value) or isinstance(value, kinds))
    }
    return sorted(public | getattr(interface, '__abstractmethods__', frozenset()))


def _place(cls: type) -> str:
    """Returns ``file:line`` of a class, or its dotted name if it has no source."""
    file, line = _source(cls)
    return f'{file}:{line}' if line else file


def _source(cls: type) -> tuple[str, int]:
    """Returns the file and the line of a class, or its dotted name and 0 if it has no source."""
    try:
        return str(inspect.getsourcefile(cls)), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return f'{cls.__module__}.{cls.__qualname__}', 0


def _in(package: str, **names: str) -> dict[str, str]:
    """Returns the modules that register built-in components, by name, of modules and the names that each registers."""
    return {name: f'rlframe.{package}.{module}' for module, own in names.items() for name in own.split()}


def _found_in(package: str, registry: str) -> dict[str, str]:
    """Returns the modules that register built-in components, by name, as the decorators in the files of a folder say."""
    decorator = re.compile(rf"^@{registry}\.register\('(\w+)'\)$", re.MULTILINE)
    files = sorted((Path(__file__).parent / package).glob('*.py'))
    modules = {f'rlframe.{package}.{file.stem}': file.read_text(encoding='utf-8') for file in files}
    return {name: module for module, text in modules.items() for name in decorator.findall(text)}


ENV_REGISTRY: Registry[EnvFactory] = Registry(
    'env', _in('envs', gym_env='gym', pettingzoo_env='pettingzoo', atari='atari', recorded_env='recorded')
)
"""Factories of envs, by name."""
ENV_MANAGER_REGISTRY: Registry[IEnvManager] = Registry(
    'env manager',
    _in(
        'envs',
        env_manager='base',
        vector_env='gym_vector',
        tensor_manager='torch_vector',
        async_manager='subprocess async_subprocess',
        pool_manager='env_pool',
    ),
)
"""Env managers, which step N envs together."""
POLICY_REGISTRY: Registry[Policy] = Registry('policy', _found_in('policy', 'POLICY_REGISTRY'))
"""Policies."""
MODEL_REGISTRY: Registry[nn.Module] = Registry('model', _found_in('model', 'MODEL_REGISTRY'))
"""Networks of policies."""
REWARD_MODEL_REGISTRY: Registry[RewardModel] = Registry(
    'reward model',
    _found_in('reward_model', 'REWARD_MODEL_REGISTRY'),
    interface='rlframe.reward_model.base:RewardModel',
)
"""Reward models, which pay beside, or in place of, the reward of an env."""
SERIAL_COLLECTOR_REGISTRY: Registry[ISerialCollector] = Registry(
    'serial collector',
    _in(
        'worker.collector',
        serial_collector='sample episode',
        dataset_collector='dataset',
        tensor_collector='tensor',
        battle_collector='sample_1v1 episode_1v1',
    ),
    interface='rlframe.worker.collector.base_serial_collector:ISerialCollector',
)
"""Serial collectors, which turn env steps into training samples."""
SERIAL_EVALUATOR_REGISTRY: Registry[ISerialEvaluator] = Registry(
    'serial evaluator',
    _in(
        'worker.evaluator',
        serial_evaluator='interaction',
        battle_evaluator='battle_interaction',
        metric_evaluator='metric',
    ),
    interface='rlframe.worker.evaluator.base_serial_evaluator:ISerialEvaluator',
)
"""Evaluators, which measure a policy."""
BACKEND_REGISTRY: Registry[Backend] = Registry(
    'backend', {**_in('backend', base='local', process='process'), **_in('backend.ray', backend='ray')}
)
"""Backends, in which collectors and evaluators run."""
LEARNER_REGISTRY: Registry[BaseLearner] = Registry('learner', _in('worker.learner', base_learner='base'))
"""Learners, which update a policy and run the hooks around each update."""
LEARNER_HOOK_REGISTRY: Registry[LearnerHook] = Registry(
    'learner hook',
    _in('worker.learner', learner_hook='load_ckpt save_ckpt log_show log_reduce'),
    interface='rlframe.worker.learner.learner_hook:LearnerHook',
)
"""Learner hooks, which run before or after training or one iteration of it."""
HOOK_REGISTRY: Registry[RunHook] = Registry(
    'run hook',
    _in(
        'worker.hooks',
        doctor='doctor',
        builtin_hooks='early_stop wall_clock gradient_histogram',
    ),
    interface='rlframe.worker.hooks.run_hook:RunHook',
)
"""Hooks of a whole run, which are called at its events."""
BUFFER_REGISTRY: Registry[IBuffer] = Registry(
    'replay buffer',
    _in(
        'worker.replay_buffer',
        buffer='naive',
        advanced_buffer='advanced elastic',
        sequence_buffer='sequence',
        episode_buffer='episode',
    ),
    interface='rlframe.worker.replay_buffer.buffer:IBuffer',
)
"""Replay buffers, which store transitions and sample from them."""
PARALLEL_COLLECTOR_REGISTRY: Registry[BaseParallelCollector] = Registry(
    'parallel collector',
    _in('parallel', parallel_collectors='zergling marine'),
    interface='rlframe.parallel.base_parallel_collector:BaseParallelCollector',
)
"""Parallel collectors, which collect and evaluate as the tasks of a coordinator say."""
COMM_COLLECTOR_REGISTRY: Registry[BaseCommCollector] = Registry(
    'comm collector',
    _in('parallel', comm='naive flask_fs ray', comm_collector='in_process'),
    interface='rlframe.parallel.comm_collector:BaseCommCollector',
)
"""Comm collectors, which connect a parallel collector with a coordinator."""
COMM_LEARNER_REGISTRY: Registry[BaseCommLearner] = Registry(
    'comm learner',
    _in('parallel', comm_learner='in_process', comm='flask_fs ray'),
    interface='rlframe.parallel.comm_learner:BaseCommLearner',
)
"""Comm learners, which connect a learner with a coordinator."""
COMMANDER_REGISTRY: Registry[BaseSerialCommander] = Registry(
    'commander',
    _in('worker', commander='base'),
    interface='rlframe.worker.commander:BaseSerialCommander',
)
"""Commanders, which decide what a round of training does."""
PARALLEL_COMMANDER_REGISTRY: Registry[BaseParallelCommander] = Registry(
    'parallel commander',
    _in('parallel.coordinator', solo_commander='solo one_vs_one'),
    interface='rlframe.parallel.coordinator.base_parallel_commander:BaseParallelCommander',
)
"""Commanders of parallel mode, which decide what collectors and learners do."""
TRANSPORT_REGISTRY: Registry[Transport] = Registry(
    'transport',
    {
        **_in('parallel.transport', answering='in_process', http='flask_fs'),
        **_in('backend.ray', transport='ray'),
    },
    interface='rlframe.parallel.transport.base:Transport',
)
"""Transports, by which the roles of parallel mode talk to their coordinator."""
LAUNCHER_REGISTRY: Registry[Launcher] = Registry(
    'launcher',
    {
        **_in('parallel', roles='in_process flask_fs'),
        **_in('backend.ray', launcher='ray'),
    },
    interface='rlframe.parallel.roles:Launcher',
)
"""Launchers, which start the workers of a parallel run, by the transport that the workers use."""

EVAL_METRIC_REGISTRY: Registry[EvalMetric] = Registry(
    'eval metric',
    _in('worker.evaluator', eval_metric='returns length success_rate median iqm'),
    interface='rlframe.worker.evaluator.eval_metric:EvalMetric',
)
"""Metrics of the episodes of an evaluation."""
ENV_SCHEDULE_REGISTRY: Registry[ScheduleRule] = Registry(
    'schedule rule',
    _in('worker', curriculum='linear steps success'),
    interface='rlframe.worker.curriculum:ScheduleRule',
)
"""Rules of a curriculum, which the option ``env.schedule`` names."""
LOGGER_REGISTRY: Registry[Logger] = Registry(
    'logger',
    _in('run', metric_writer='jsonl csv', loggers='tensorboard wandb mlflow'),
    interface='rlframe.run.logger:Logger',
)
"""Loggers, which write the metrics of a run to files or send them to a server."""

REGISTRIES: dict[str, Registry[Any]] = {
    'env': ENV_REGISTRY,
    'env_manager': ENV_MANAGER_REGISTRY,
    'policy': POLICY_REGISTRY,
    'model': MODEL_REGISTRY,
    'reward_model': REWARD_MODEL_REGISTRY,
    'collector': SERIAL_COLLECTOR_REGISTRY,
    'evaluator': SERIAL_EVALUATOR_REGISTRY,
    'backend': BACKEND_REGISTRY,
    'learner': LEARNER_REGISTRY,
    'learner_hook': LEARNER_HOOK_REGISTRY,
    'run_hook': HOOK_REGISTRY,
    'replay_buffer': BUFFER_REGISTRY,
    'commander': COMMANDER_REGISTRY,
    'parallel_collector': PARALLEL_COLLECTOR_REGISTRY,
    'comm_collector': COMM_COLLECTOR_REGISTRY,
    'comm_learner': COMM_LEARNER_REGISTRY,
    'logger': LOGGER_REGISTRY,
    'eval_metric': EVAL_METRIC_REGISTRY,
    'schedule_rule': ENV_SCHEDULE_REGISTRY,
}
"""Registries under the names that a config's ``create_config`` uses; a backend is chosen by the option ``backend``,
loggers by ``loggers``, metrics of evaluations by ``metrics``, rules of a curriculum in ``env.schedule``.
In parallel mode, the commander is one of ``PARALLEL_COMMANDER_REGISTRY``."""
