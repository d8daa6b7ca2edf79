"""The options of a whole config: those of the run, and those of each class that the config chooses."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlframe.config.backends import with_backend
from rlframe.config.tree import (
    ALL_COMPONENTS,
    COMPONENTS,
    PARALLEL,
    SECTIONS,
    Component,
    Tree,
    components_of,
    is_parallel,
    plain_type,
    section_at,
    set_path,
)
from rlframe.errors import ConfigError, InterfaceError, RegistryError
from rlframe.registry import (
    COMMANDER_REGISTRY,
    HOOK_REGISTRY,
    MODEL_REGISTRY,
    PARALLEL_COMMANDER_REGISTRY,
    POLICY_REGISTRY,
    import_modules,
    is_list_of_names,
)
from rlframe.run.child_process import STALL_TIMEOUT
from rlframe.run.logger import LOGGERS
from rlframe.utils.field import (
    Field,
    Options,
    ResolvedConfig,
    Section,
    as_fields,
    fields_of,
    merge_fields,
    option,
    raw_items,
)
from rlframe.utils.options import CheckpointConfig, CoordinatorConfig


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


def _check_import_names(names: Sequence[Any]) -> str:
    return '' if is_list_of_names(names) else 'a list of module names'


IMPORT_NAMES = Field(
    [],
    doc='modules to import, so that they register their components',
    check=_check_import_names,
    reaches='code',
)


COMM_SECTIONS = "comm_collector=dict(type='flask_fs'), comm_learner=dict(type='flask_fs')"
"""What makes a config one of parallel mode."""


HOOKS = 'hooks'
"""Section of the hooks of a run, with a section for each."""
EVERY_RUN = ('doctor',)
"""Hooks that a run has unless they are switched off."""
HOOK_SECTION = 'a dict with a section for each hook, such as hooks=dict(early_stop=dict(patience=5))'


class Undeclared(Field):
    """An option of a class that declares no options, so what it reaches is unknown."""

    def reach_of(self, value: Any) -> str:
        """Returns ``'code'`` for any value."""
        return 'code'


class RunConfig(Section):
    """Options of the run itself."""

    exp_name: str = option('default_experiment', doc='name of the run folder', check=_check_exp_name)
    seed: int | None = option(
        0,
        range='[0, 4294967296)',
        doc='None: drawn at random and saved in the config',
    )
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


TOP = fields_of(RunConfig)


LOOPBACK = ('127.0.0.1', 'localhost', '::1')
"""Hosts that only this machine reaches."""


def _is_loopback(host: Any) -> bool:
    return isinstance(host, str) and host in LOOPBACK


class CoordinatorSection(CoordinatorConfig):
    """Section ``parallel.coordinator``: the options of the coordinator, and of its server."""

    host: str = option(
        '127.0.0.1',
        doc='address that the coordinator listens on; one that other machines reach needs a token',
        may_change=True,
        reaches='network',
        harmless=_is_loopback,
    )
    port: int | None = option(
        None,
        range='[0, 65535]',
        doc='port that it listens on; None: a free one with -m parallel, 7235 with -m coordinator',
        may_change=True,
        reaches='network',
    )
    transport: dict[str, Any] = option(
        {},
        doc="further options of the transport's server, such as token",
        may_change=True,
        reaches='network',
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


class ExperimentConfig(RunConfig):
    """A whole config, as ``compile_config`` returns it."""

    seed: int
    hooks: ResolvedConfig
    env: EnvSection
    policy: PolicySection
    parallel: ParallelSection


def find_schema(tree: Tree, errors: list[ConfigError]) -> tuple[dict[str, Any], Options]:
    """Finds the classes that the tree names and returns them with all their options.

    If the class of a section is unknown, its keys are removed from the tree, so only that error is reported.
    """
    _import(tree.get('import_names'), 'import_names', errors)
    classes: dict[str, Any] = {}
    options: Options = dict(TOP)
    if is_parallel(tree):
        options[PARALLEL] = dict(PARALLEL_FIELDS)
    options[HOOKS] = _open_hooks(tree, errors)
    for part in (*components_of(tree), *hook_parts(tree)):
        declared = section_at(options, part.path)
        if part.name == 'replay_buffer' and not _wants_buffer(tree, options, classes, errors):
            _drop(tree, part)
            set_path(options, part.path, Field(None))
            continue
        name, cls = _find_class(tree, part, declared, errors)
        if cls is None:
            _keep_only_components(tree, part)
        classes[part.name] = cls
        own = merge_fields(_fields_of(cls, section_at(tree, part.path), part.path), dict(declared))
        own = with_backend(tree, part, own, errors)
        kind = Field(name, type=str, may_change=part.may_change)
        set_path(options, part.path, {**own, 'type': kind, 'import_names': IMPORT_NAMES})
        if part.name == 'policy':
            _prepare_policy(tree, options['policy'], errors)
    return classes, options


def hook_parts(tree: Mapping[str, Any]) -> tuple[Component, ...]:
    """Returns the hooks of a merged tree or of a compiled config; a hook without a type is of the type of its name."""
    return tuple(
        Component(f'{HOOKS}.{name}', (HOOKS, name), name, may_change=True, own_registry=HOOK_REGISTRY)
        for name, value in raw_items(section_at(tree, (HOOKS,)))
        if value is True or isinstance(value, Mapping)
    )


def _open_hooks(tree: Tree, errors: list[ConfigError]) -> Options:
    """Completes the section of hooks: those of every run are added, and ``True`` is a hook with default options.

    Returns:
        Options of the hooks that are switched off.
    """
    given = tree.get(HOOKS)
    if given is not None and not isinstance(given, Mapping):
        errors.append(ConfigError('bad value', where=HOOKS, got=given, expected=HOOK_SECTION))
        given = None
    section: Tree = {
        **{name: {} for name in EVERY_RUN if name in HOOK_REGISTRY},
        **dict(raw_items(given or {})),
    }
    tree[HOOKS] = section
    for name, value in list(section.items()):
        if value is True:
            section[name] = {}
        elif value is None or value is False:
            section[name] = False
        elif not isinstance(value, Mapping):
            del section[name]
            errors.append(
                ConfigError(
                    'bad value',
                    where=f'{HOOKS}.{name}',
                    got=value,
                    expected='a dict of options, True or False',
                )
            )
    return {name: Field(False, may_change=True) for name, value in section.items() if value is False}


def hook_errors(classes: Mapping[str, Any], values: Tree) -> list[ConfigError]:
    """Returns an error for each hook that needs an event which the run does not have."""
    backend = section_at(values, ('policy', 'collect', 'collector')).get('backend', 'local')
    found = []
    for part in hook_parts(values):
        cls = classes.get(part.name)
        if cls is not None and (why := cls.why_not(is_parallel(values), backend)):
            found.append(ConfigError(why, where=part.key, remedy=f'Switch it off here: {part.key}=False.'))
    return found


def drop_replaced_defaults(tree: Tree, before: Tree) -> None:
    """Removes options that only state defaults of a class that an override replaced, as in a complete config.

    Args:
        tree: Options set by the user, including overrides.
        before: The same without overrides.
    """
    for part in components_of(tree):
        registry, sections = part.registry, [section_at(side, part.path) for side in (before, tree)]
        names = [section.get('type', part.default) for section in sections]
        if names[0] == names[1] or not all(name in registry.names() for name in names):
            continue
        kinds: list[Any] = [registry.get(name) for name in names]
        if all(hasattr(kind, 'config_fields') for kind in kinds):  # else all may be the user's choice
            _drop_defaults(sections[1], sections[0], *(kind.config_fields() for kind in kinds))


def _drop_defaults(section: Any, before: Mapping[str, Any], was: Options, now: Options) -> None:
    for name in [name for name in was if name in section and name in before]:
        option, value = was[name], section[name]
        if isinstance(option, dict) and isinstance(value, dict):
            _drop_defaults(value, before[name], option, now.get(name, {}))
            if not value and name not in now:
                del section[name]
        elif isinstance(option, Field) and name not in now and value == before[name] == option.default:
            del section[name]


def _import(names: Any, where: str, errors: list[ConfigError]) -> None:
    if is_list_of_names(names):
        try:
            import_modules(names)
        except ConfigError as error:
            error.where = where
            errors.append(error)


def _add_unless_import_failed(error: RegistryError, errors: list[ConfigError]) -> None:
    if not any(earlier.where.endswith('import_names') for earlier in errors):
        errors.append(error)


def _find_class(
    tree: Tree, part: Component, declared: Mapping[str, Any], errors: list[ConfigError]
) -> tuple[str, Any]:
    """Returns the name and the class of a component; the class is ``None`` if it is not found."""
    section, registry = section_at(tree, part.path), part.registry
    _import(section.get('import_names'), f'{part.key}.import_names', errors)
    preset = declared.get('type')
    name: Any = section.get('type', preset.default if isinstance(preset, Field) else part.default)
    if part.name == 'policy' and name not in POLICY_REGISTRY.names():
        name = plain_type(name)
    where = f'{part.key}.type'
    if not isinstance(name, str):
        errors.append(_no_type(part, name))
        return '', None
    if 'type' in section:
        set_path(tree, (*part.path, 'type'), name)
    try:
        cls = registry.get(name)
        registry.check_interface(name)
        return name, cls
    except InterfaceError as error:
        error.where = where
        errors.append(error)
        return name, None
    except RegistryError as error:
        error.where = where
        error.remedy = _other_mode(part, name) or error.remedy
        _add_unless_import_failed(error, errors)
        return name, None


def _no_type(part: Component, name: Any) -> ConfigError:
    """Returns the error for a component without a type, or with one that is no text."""
    where, names = f'{part.key}.type', f'one of {part.registry.names()}'
    if name is not None:
        return ConfigError('bad value', where=where, got=name, expected=names)
    example = f", such as {part.name}=dict(type='flask_fs')" if part.path[0] == PARALLEL else ''
    remedy = f'In create_config.{part.name}: {names}{example}.'
    return ConfigError('a required key is missing', where=where, remedy=remedy)


def _other_mode(part: Component, name: str) -> str:
    """Returns advice for a commander of the other mode; an empty string for all other names."""
    if part.registry is PARALLEL_COMMANDER_REGISTRY and name in COMMANDER_REGISTRY:
        return f'{name!r} is a commander of serial mode, and this config has the section {PARALLEL!r}.'
    if part.registry is COMMANDER_REGISTRY and name in PARALLEL_COMMANDER_REGISTRY:
        return f'{name!r} is a commander of parallel mode. Add to create_config: {COMM_SECTIONS}.'
    return ''


def _fields_of(cls: Any, section: Mapping[str, Any], path: tuple[str, ...]) -> Options:
    """Returns the declared options of a class; a class without any accepts all options."""
    if hasattr(cls, 'config_fields'):
        return dict(cls.config_fields())
    return {} if cls is None else _open_fields(section, path)


def _open_fields(section: Mapping[str, Any], path: tuple[str, ...]) -> Options:
    inner = {part.path for part in ALL_COMPONENTS}
    return {
        name: _open_fields(value, (*path, name))
        if (*path, name) in SECTIONS
        else Undeclared(value, type=object)
        for name, value in section.items()
        if (*path, name) not in inner
    }


def _prepare_policy(tree: Tree, options: Options, errors: list[ConfigError]) -> None:
    """Sets the options that the class alone decides, and replaces the model's options if the user provides a model."""
    on_policy = options.get('on_policy')
    if isinstance(on_policy, Field):
        options['on_policy'] = dataclasses.replace(on_policy, choices=(on_policy.default,))
    for mode in ('learn', 'collect', 'eval', 'other'):
        options.setdefault(mode, {})
    if not isinstance(options.get('model'), dict):
        return
    section = section_at(tree, ('policy', 'model'))
    _import(section.get('import_names'), 'policy.model.import_names', errors)
    name = section.get('type')
    own = as_fields(options['model'])
    if isinstance(name, str) and not MODEL_REGISTRY.is_builtin(name):
        try:
            own = _fields_of(MODEL_REGISTRY.get(name), section, ('policy', 'model'))
        except RegistryError as error:
            error.where = 'policy.model.type'
            _add_unless_import_failed(error, errors)
            set_path(tree, ('policy', 'model'), {})
    preset = own.get('type')
    default = preset.default if isinstance(preset, Field) and name is None else name
    options['model'] = {
        **own,
        'type': Field(default, type=(str, type(None))),
        'import_names': IMPORT_NAMES,
    }


def _wants_buffer(
    tree: Tree, options: Options, classes: Mapping[str, Any], errors: list[ConfigError]
) -> bool:
    """Whether there is a replay buffer: off-policy policies require one, on-policy ones must not have one."""
    section = section_at(tree, ('policy', 'other'))
    stated = section.get('replay_buffer', 'default')
    if classes['policy'] is None:
        return bool(section_at(section, ('replay_buffer',)).get('type'))
    on_policy = options['policy'].get('on_policy')
    name, where = options['policy']['type'].default, 'policy.other.replay_buffer'
    if isinstance(on_policy, Field) and on_policy.default:
        if stated not in ('default', None, {}):
            message = f'the on-policy policy {name!r} learns from fresh data only and takes no replay buffer'
            errors.append(ConfigError(message, where=where, remedy='Leave out create_config.replay_buffer.'))
        return False
    if stated is None:
        preset = section_at(options, ('policy', 'other', 'replay_buffer')).get('type')
        kind = preset.default if isinstance(preset, Field) else COMPONENTS[-1].default
        message = (
            f'the off-policy policy {name!r} learns from a replay buffer; create_config.replay_buffer is None'
        )
        remedy = f"Leave it out, or name one: create_config.replay_buffer = dict(type='{kind}')."
        errors.append(ConfigError(message, where=where, remedy=remedy))
    return stated is not None


def _drop(tree: Tree, part: Component) -> None:
    above = section_at(tree, part.path[:-1])
    if isinstance(above, dict):
        above.pop(part.path[-1], None)


def _keep_only_components(tree: Tree, part: Component) -> None:
    """Takes everything out of a component's section but the components inside it."""
    inner = [(p.path, section_at(tree, p.path)) for p in ALL_COMPONENTS if p.key.startswith(part.key + '.')]
    set_path(tree, part.path, {})
    for path, section in inner:
        if section:
            set_path(tree, path, section)
