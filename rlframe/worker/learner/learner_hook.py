"""Learner hooks: code that runs before or after training or one iteration of it, in order of priority."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rlframe.errors import CheckpointError, ConfigError, HookError
from rlframe.registry import LEARNER_HOOK_REGISTRY, is_list_of_names, nearest
from rlframe.run.metrics import write_record
from rlframe.run.read_checkpoint import find_checkpoint
from rlframe.utils.every import interval_problem

if TYPE_CHECKING:
    from rlframe.worker.learner.base_learner import BaseLearner

ITER_POSITIONS = ('before_iter', 'after_iter')
POSITIONS = ('before_run', 'after_run', *ITER_POSITIONS)

SHORTHANDS = {
    'load_ckpt_before_run': ('load_ckpt', 'before_run', 20, 'load_path'),
    'log_show_after_iter': ('log_show', 'after_iter', 20, 'freq'),
    'save_ckpt_after_iter': ('save_ckpt', 'after_iter', 20, 'freq'),
    'save_ckpt_after_run': ('save_ckpt', 'after_run', 20, None),
    'log_reduce_after_iter': ('log_reduce', 'after_iter', 10, None),
}
"""Config key of a built-in hook: its type, position, priority and the option that the key's value sets."""

H = TypeVar('H', bound=type)
Hooks = dict[str, list['LearnerHook']]

_PLAIN_HOOKS = {'save_ckpt': {'freq'}, 'log_show': {'freq'}, 'log_reduce': set()}
"""Types of hooks that stay in the run folder, and their own options."""
_PLAIN_OPTIONS = {'type', 'import_names', 'name', 'position', 'priority'}

TAGS = {'cur_lr': 'learning_rate'}
"""Training variables with a different tag name."""


class LearnerHook(ABC):
    """Called with the learner at one position; hooks of lower priority run first, equal ones in the order of adding.

    ``position``, ``priority`` and ``name`` may be class attributes of a subclass. A hook uses only the learner's public
    attributes and methods.

    Args:
        args: Name and priority, both optional.
        position: One of ``before_run, after_run, before_iter, after_iter``.
        ext_args: Options as one dict, as DI-engine has them; they are set as attributes like keyword options.
        kwargs: ``name``, ``priority`` and options, which become attributes.

    Raises:
        HookError: If the position is none of the four or the priority is negative.
    """

    name: str = ''
    position: str = ''
    priority: int = 100
    every: int | str = 1
    """At ``before_iter`` and ``after_iter``, it is called at the train iterations that this number divides; with a text
    such as ``'5000 env steps'``, at the first train iteration after the env steps reach a multiple."""

    def __init__(
        self,
        *args: Any,
        position: str | None = None,
        ext_args: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = dict(zip(('name', 'priority'), args, strict=False))
        for name, value in {**given, **(ext_args or {}), **kwargs}.items():
            setattr(self, name, value)
        if position is not None:
            self.position = position
        self.name = self.name or type(self).__name__
        if self.position not in POSITIONS:
            raise HookError(
                f'no hook position {self.position!r}.{nearest(self.position, POSITIONS)}',
                where=self.name,
                remedy=f'Positions: {", ".join(POSITIONS)}.',
            )
        if not isinstance(self.priority, int) or self.priority < 0:
            raise HookError('bad priority', where=self.name, got=self.priority, expected='an int >= 0')

    @abstractmethod
    def __call__(self, learner: BaseLearner) -> None:
        """Does the hook's work."""

    def __repr__(self) -> str:
        return f'{self.name}({self.position}, priority {self.priority})'


@overload
def register_learner_hook(name: str, hook_type: None = None) -> Callable[[H], H]: ...
@overload
def register_learner_hook(name: str, hook_type: H) -> H: ...
def register_learner_hook(name: str, hook_type: H | None = None) -> H | Callable[[H], H]:
    """Registers a hook class under a name that configs can use; without ``hook_type`` it is a decorator.

    Raises:
        HookError: If it is no ``LearnerHook``.
    """
    if hook_type is None:
        return lambda hook_type: register_learner_hook(name, hook_type)
    if not (isinstance(hook_type, type) and issubclass(hook_type, LearnerHook)):
        raise HookError(f'hook {name!r} must be a subclass of LearnerHook', got=hook_type, expected='a class')
    return LEARNER_HOOK_REGISTRY.register(name, hook_type)


def add_learner_hook(hooks: Hooks, hook: LearnerHook) -> None:
    """Adds a hook at its position, behind all hooks with a lower or the same priority number."""
    hooks[hook.position] = sorted([*hooks[hook.position], hook], key=lambda h: h.priority)


def merge_hooks(hooks1: Hooks, hooks2: Hooks) -> Hooks:
    """Merges two sets of hooks by priority; at equal priority, the first set's come first.

    Raises:
        HookError: If they do not have the same positions.
    """
    if hooks1.keys() != hooks2.keys():
        raise HookError(f'hooks with the positions {sorted(hooks1)} and {sorted(hooks2)} cannot be merged')
    return {
        position: sorted(hooks1[position] + hooks2[position], key=lambda h: h.priority) for position in hooks1
    }


def build_learner_hook_by_cfg(cfg: Mapping[str, Any]) -> Hooks:
    """Builds the hooks of a config section.

    A key is one of the shorthands (``log_show_after_iter=100``), with ``None``, ``False`` or ``''`` for "no such hook",
    or any name with ``dict(type=..., position=..., priority=100, **options)``.

    Returns:
        Hooks by position, all four positions present.

    Raises:
        HookError: If a key is neither; the closest shorthand is named.
    """
    hooks: Hooks = {position: [] for position in POSITIONS}
    for key, value in cfg.items():
        if _is_none(value):
            continue
        if isinstance(value, Mapping):
            options = {name: v for name, v in value.items() if name not in ('type', 'import_names')}
            options.setdefault('name', key)
            hook = LEARNER_HOOK_REGISTRY.build(value, **options)
        elif key in SHORTHANDS:
            kind, position, priority, option = SHORTHANDS[key]
            options = {option: value} if option else {}
            hook = LEARNER_HOOK_REGISTRY.get(kind)(key, priority, position=position, **options)
        else:
            raise HookError(
                f'no learner hook {key!r}.{nearest(key, SHORTHANDS)}',
                where=f'policy.learn.learner.hook.{key}',
                remedy=f'Shorthands: {", ".join(SHORTHANDS)}; a hook of your own is dict(type=..., position=...).',
            )
        add_learner_hook(hooks, hook)
    return hooks


def hook_errors(cfg: Mapping[str, Any]) -> list[ConfigError]:
    """Returns an error for each hook whose type, position or checkpoint does not exist."""
    errors: list[ConfigError] = []
    if isinstance(path := cfg.get('load_ckpt_before_run'), str) and path:
        try:
            find_checkpoint(path)
        except CheckpointError as error:
            message = f'{error.where}: {error.message}'
            errors.append(type(error)(message, where='hook.load_ckpt_before_run', remedy=error.remedy))
    for key, value in cfg.items():
        if not isinstance(value, Mapping):
            continue
        try:
            kind = LEARNER_HOOK_REGISTRY.get_cls(value)
            LEARNER_HOOK_REGISTRY.check_interface(value['type'])
        except ConfigError as error:
            error.where = f'hook.{key}'
            errors.append(error)
            continue
        position = value.get('position') or kind.position
        if position not in POSITIONS:
            message = f'no hook position {position!r}.{nearest(str(position), POSITIONS)}'
            remedy = f'Positions: {", ".join(POSITIONS)}.'
            errors.append(ConfigError(message, where=f'hook.{key}', remedy=remedy))
    return errors


def _is_none(value: Any) -> bool:
    """Whether a config's value says "no such hook"; 0 does not, it is no frequency."""
    return value is None or value is False or value == ''


def are_plain_hooks(cfg: Any) -> bool:
    """Whether all hooks of a section stay in the run folder: built-in ones that do not load a checkpoint."""
    return isinstance(cfg, Mapping) and all(_is_plain_hook(key, value) for key, value in cfg.items())


def _is_plain_hook(key: Any, value: Any) -> bool:
    if not isinstance(value, Mapping):
        loads = key == 'load_ckpt_before_run'
        return _is_none(value) or (isinstance(key, str) and key in SHORTHANDS and not loads)
    kind = value.get('type')
    if not (isinstance(kind, str) and kind in _PLAIN_HOOKS):
        return False
    if value.get('import_names') not in (None, [], ()):
        return False
    return value.keys() <= _PLAIN_OPTIONS | _PLAIN_HOOKS[kind]


def check_hooks(cfg: Mapping[str, Any]) -> str:
    """Returns a description of valid hook sections if a section is invalid, else an empty string."""
    for key, value in cfg.items():
        if isinstance(value, Mapping):
            if 'type' not in value:
                return f'a type for the hook {key!r}'
            if not all(isinstance(value.get(name, ''), str) for name in ('type', 'position', 'name')):
                return f'strings as type, position and name of the hook {key!r}'
            if not is_list_of_names(value.get('import_names') or []):
                return f'a list of module names as import_names of the hook {key!r}'
        elif key not in SHORTHANDS:
            return f'a shorthand instead of {key!r}.{nearest(key, SHORTHANDS)} Shorthands: {", ".join(SHORTHANDS)}'
        elif SHORTHANDS[key][3] == 'freq' and not _is_none(value) and (form := interval_problem(value)):
            return f'{key} to be False, or {form}'
    return ''


@register_learner_hook('load_ckpt')
class LoadCkptHook(LearnerHook):
    """Loads weights, optimizer and counters from the checkpoint ``load_path``."""

    position, priority = 'before_run', 20
    load_path = ''

    def __call__(self, learner: BaseLearner) -> None:
        if self.load_path:
            learner.load_checkpoint(self.load_path)


class PeriodicHook(LearnerHook):
    """A hook that runs every ``freq``: train iterations, or ``'N env steps'``."""

    position, priority = 'after_iter', 20
    freq: int | str = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.every = self.freq


@register_learner_hook('save_ckpt')
class SaveCkptHook(PeriodicHook):
    """Saves a checkpoint every ``freq``, train iterations or ``'N env steps'``, or once after the run."""

    def __call__(self, learner: BaseLearner) -> None:
        if learner.rank == 0:
            learner.save_checkpoint()


@register_learner_hook('log_show')
class LogShowHook(PeriodicHook):
    """Writes the means of the training variables over the last ``freq``, train iterations or ``'N env steps'``."""

    freq: int | str = 100

    def __call__(self, learner: BaseLearner) -> None:
        means = learner.monitor.take_means()
        if learner.rank == 0 or not learner.only_monitor_rank0:
            values = {f'train/{TAGS.get(name, name)}': value for name, value in means.items()}
            write_record(learner.tb_logger, values, learner.collector_envstep, train_iter=learner.train_iter)
            if learner.tb_logger is not None and hasattr(learner.tb_logger, 'add_histogram'):
                for name, histogram in learner.log_buffer['histogram'].items():
                    learner.tb_logger.add_histogram(f'train/{name}', histogram, learner.collector_envstep)
            shown = ', '.join(f'{name} {value:.4g}' for name, value in means.items())
            learner.debug(f'train_iter {learner.train_iter}: {shown}')


@register_learner_hook('log_reduce')
class LogReduceHook(LearnerHook):
    """Averages the training variables over all processes of a distributed run, in one all-reduce.

    Variables whose name starts with ``noreduce_`` are not averaged. It does nothing in a single process.
    """

    position, priority = 'after_iter', 10

    def __call__(self, learner: BaseLearner) -> None:
        if learner.world_size == 1:
            return
        import torch
        import torch.distributed as dist

        scalars = learner.log_buffer['scalar']
        names = sorted(name for name in scalars if not name.startswith('noreduce_'))
        packed = torch.stack(
            [torch.as_tensor(scalars[name], dtype=torch.float64).detach().cpu() for name in names]
        )
        dist.all_reduce(packed)
        learner.monitor.replace_last(dict(zip(names, (packed / learner.world_size).tolist(), strict=True)))
