"""Finds the classes that a config names, and the options of these classes and of their backends."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlframe.config.reward_models import keep_rows, open_reward_models, reward_parts
from rlframe.config.schema import (
    ALIASES,
    ALL_COMPONENTS,
    BACKENDS,
    COMPONENTS,
    EVERY_RUN,
    HOOKS,
    IMPORT_NAMES,
    IN_PARALLEL,
    LOCAL,
    PARALLEL,
    PARALLEL_FIELDS,
    REWARD_MODELS,
    ROLES,
    SECTIONS,
    TOP,
    Component,
    Tree,
)
from rlframe.errors import ConfigError, InterfaceError, RegistryError
from rlframe.registry import (
    BACKEND_REGISTRY,
    COMMANDER_REGISTRY,
    EVAL_METRIC_REGISTRY,
    HOOK_REGISTRY,
    LEARNER_HOOK_REGISTRY,
    LOGGER_REGISTRY,
    MODEL_REGISTRY,
    PARALLEL_COMMANDER_REGISTRY,
    POLICY_REGISTRY,
    Registry,
    import_modules,
    is_list_of_names,
)
from rlframe.utils.component_list import chosen
from rlframe.utils.field import Field, Options, as_fields, merge_fields, raw_items

MISSING: Any = type('Missing', (), {'__repr__': lambda self: 'MISSING', '__bool__': lambda self: False})()
"""Result of ``value_at`` and ``take_at`` for a missing key, if it is asked for."""
HOOK_SECTION = 'a dict with a section for each hook, such as hooks=dict(early_stop=dict(patience=5))'


def is_parallel(tree: Mapping[str, Any]) -> bool:
    """Whether a merged tree or a compiled config is one of parallel mode."""
    return dict(raw_items(tree)).get(PARALLEL) is not None


def components_of(tree: Mapping[str, Any]) -> tuple[Component, ...]:
    """Returns the components of a merged tree or of a compiled config."""
    return IN_PARALLEL if is_parallel(tree) else COMPONENTS


def section_at(tree: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    """Returns the section at ``path``, or an empty one if there is none."""
    section: Any = tree
    for name in path:
        section = section.get(name) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def value_at(tree: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Returns the value at a dotted key, or the default if it is missing."""
    *path, name = key.split('.')
    return section_at(tree, path).get(name, default)


def take_at(tree: Tree, key: str, default: Any = None) -> Any:
    """Removes the value at a dotted key and returns it, or the default if it is missing."""
    *path, name = key.split('.')
    section = section_at(tree, path)
    return section.pop(name, default) if isinstance(section, dict) else default


def set_path(tree: Tree, path: Sequence[str], value: Any) -> None:
    """Sets a value, making the sections above it.

    Raises:
        ConfigError: If a parent key has a value.
    """
    for depth, name in enumerate(path[:-1]):
        below = tree.get(name)
        if below is None:
            below = tree[name] = {}
        if not isinstance(below, dict):
            where = '.'.join(path[: depth + 1])
            raise ConfigError(f'{where} holds {below!r}, so {".".join(path)} cannot be set', where=where)
        tree = below
    tree[path[-1]] = value


def full_key(key: str) -> str:
    """Returns a dotted key with an alias at its start expanded."""
    first, *rest = key.split('.')
    return '.'.join([ALIASES.get(first, first) if rest else first, *rest])


def plain_type(name: Any) -> Any:
    """Returns a policy's name without the ``_command`` that DI-engine appends."""
    return name.removesuffix('_command') if isinstance(name, str) else name


class Undeclared(Field):
    """An option of a class that declares no options, so what it reaches is unknown."""

    def reach_of(self, value: Any) -> str:
        """Returns ``'code'`` for any value."""
        return 'code'


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
    open_reward_models(tree, errors)
    for part in (*components_of(tree), *named_parts(tree)):
        declared = section_at(options, part.path)
        if part.name == 'replay_buffer' and not _wants_buffer(tree, options, classes, errors):
            take_at(tree, part.key)
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
            _prepare_policy(tree, cls, options['policy'], errors)
        if part.name == 'collector' and name == 'dataset':
            _read_whole_batches(options['policy']['collect'])
    if tree.get(REWARD_MODELS):
        keep_rows(options['policy']['collect'], tree)
    return classes, options


def named_parts(tree: Mapping[str, Any]) -> tuple[Component, ...]:
    """Returns the components of a merged tree or of a compiled config that the config gives names: hooks and reward models."""
    return (*hook_parts(tree), *reward_parts(tree))


def hook_parts(tree: Mapping[str, Any]) -> tuple[Component, ...]:
    """Returns the hooks of a merged tree or of a compiled config; a hook without a type is of the type of its name."""
    return tuple(
        Component(f'{HOOKS}.{name}', (HOOKS, name), name, may_change=True, own_registry=HOOK_REGISTRY)
        for name, value in raw_items(section_at(tree, (HOOKS,)))
        if value is True or isinstance(value, Mapping)
    )


def _open_hooks(tree: Tree, errors: list[ConfigError]) -> Options:
    """Completes the section of hooks: adds the hooks of every run; ``True`` is a hook with default options.

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
    section = section_at(tree, part.path)
    registry = part.registry
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
    return ConfigError(
        'a required key is missing', where=where, remedy=f'In create_config.{part.name}: {names}.'
    )


def _other_mode(part: Component, name: str) -> str:
    """Returns advice for a commander of the other mode; an empty string for all other names."""
    if part.registry is PARALLEL_COMMANDER_REGISTRY and name in COMMANDER_REGISTRY:
        return f'{name!r} is a commander of serial mode, and this config has the section {PARALLEL!r}.'
    if part.registry is COMMANDER_REGISTRY and name in PARALLEL_COMMANDER_REGISTRY:
        return (
            f'{name!r} is a commander of parallel mode: train with -m parallel, in Python with parallel=True.'
        )
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


def _prepare_policy(tree: Tree, policy: Any, options: Options, errors: list[ConfigError]) -> None:
    """Sets the options that the class alone decides, and replaces the model's options if the user provides a model."""
    # sections of every policy
    on_policy = options.get('on_policy')
    if isinstance(on_policy, Field):
        options['on_policy'] = dataclasses.replace(on_policy, choices=(on_policy.default,))
    for mode in ('learn', 'collect', 'eval', 'other'):
        options.setdefault(mode, {})
    if not isinstance(options.get('model'), dict):
        return
    # options of the network
    section = section_at(tree, ('policy', 'model'))
    _import(section.get('import_names'), 'policy.model.import_names', errors)
    name = section.get('type')
    own = as_fields(options['model'])
    if isinstance(name, str) and not MODEL_REGISTRY.is_builtin(name):
        try:
            network = MODEL_REGISTRY.get(name)
            open_fields = _fields_of(network, section, ('policy', 'model'))
            own = {
                **open_fields,
                **(policy.network_fields(network) if hasattr(policy, 'network_fields') else {}),
            }
        except RegistryError as error:
            error.where = 'policy.model.type'
            _add_unless_import_failed(error, errors)
            set_path(tree, ('policy', 'model'), {})
    preset = own.get('type')
    default = preset.default if isinstance(preset, Field) and name is None else name
    options['model'] = {**own, 'type': Field(default, type=(str, type(None))), 'import_names': IMPORT_NAMES}


def _read_whole_batches(collect: Options) -> None:
    """Lets a round of recorded data be a batch, whatever a policy collects by default."""
    n_sample = collect.get('n_sample')
    if isinstance(n_sample, Field):
        collect['n_sample'] = dataclasses.replace(n_sample, default=None)


def _wants_buffer(
    tree: Tree, options: Options, classes: Mapping[str, Any], errors: list[ConfigError]
) -> bool:
    """Whether there is a replay buffer: off-policy policies require one, on-policy ones and recorded data must not have one."""
    section = section_at(tree, ('policy', 'other'))
    stated = section.get('replay_buffer', 'default')
    if classes['policy'] is None:
        return bool(section_at(section, ('replay_buffer',)).get('type'))
    on_policy = options['policy'].get('on_policy')
    name = options['policy']['type'].default
    where = 'policy.other.replay_buffer'
    reads_data = section_at(options, ('policy', 'collect', 'collector'))['type'].default == 'dataset'
    if reads_data or (isinstance(on_policy, Field) and on_policy.default):
        if stated not in ('default', None, {}):
            message = f'the on-policy policy {name!r} learns from fresh data only and takes no replay buffer'
            if reads_data:
                message = 'recorded data are learned from as they are read, without a replay buffer'
            given = [f'{where}.{name}' for name in section_at(section, ('replay_buffer',)) if name != 'type']
            remedy = f'Leave out {given[0] if given else "create_config.replay_buffer"}.'
            errors.append(ConfigError(message, where=where, remedy=remedy))
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


def _keep_only_components(tree: Tree, part: Component) -> None:
    """Takes everything out of a component's section but the components inside it."""
    inner = [(p.path, section_at(tree, p.path)) for p in ALL_COMPONENTS if p.key.startswith(part.key + '.')]
    set_path(tree, part.path, {})
    for path, section in inner:
        if section:
            set_path(tree, path, section)


def with_backend(tree: Tree, part: Component, own: Options, errors: list[ConfigError]) -> Options:
    """Adds the options of a section's backend to the options of its component.

    An unknown backend is an error: its name is removed from the tree, and the options of all backends are accepted.

    Options of the component, ``own``, have precedence. Mistakes are appended to ``errors``.
    """
    if part.name not in ROLES:
        return own
    kind = _find(section_at(tree, part.path), part, errors)
    kinds = [BACKEND_REGISTRY.get(name) for name in BACKEND_REGISTRY.names()] if kind is None else [kind]
    offered = {name: field for each in kinds for name, field in each.options_of(part.name).items()}
    return {**offered, **own, 'backend': BACKENDS[part.name]}


def _find(section: Mapping[str, Any], part: Component, errors: list[ConfigError]) -> Any:
    """Returns the backend that a section names; None, and the name taken out, if it is not found."""
    name = section.get('backend', LOCAL)
    where = f'{part.key}.backend'
    try:
        if isinstance(name, str):
            return BACKEND_REGISTRY.get(name)
        names = f'one of {BACKEND_REGISTRY.names()}'
        errors.append(ConfigError('bad value', where=where, got=name, expected=names))
    except RegistryError as error:
        if not any(earlier.where.endswith('import_names') for earlier in errors):
            errors.append(ConfigError(error.message, where=where, remedy=error.remedy))
    if isinstance(section, dict):
        section.pop('backend', None)
    return None


def options_of(backend: Any, role: str) -> Options:
    """Returns the options that a backend has for a role; none if it is not registered."""
    if not isinstance(backend, str) or backend not in BACKEND_REGISTRY:
        return {}
    return BACKEND_REGISTRY.get(backend).options_of(role)


def drop_replaced_backend(tree: Tree, before: Tree) -> None:
    """Removes options of a backend that an override replaced. ``before`` are the options set by the user without overrides."""
    for role, path in ROLES.items():
        section, old = section_at(tree, path), section_at(before, path)
        was, now = (options_of(each.get('backend', LOCAL), role) for each in (old, section))
        for name in was.keys() & old.keys() - now.keys():
            if isinstance(section, dict) and section.get(name) == old[name]:
                section.pop(name, None)


def backend_errors(known: Mapping[str, Any]) -> list[ConfigError]:
    """Returns the mistakes that the backends of a config find.

    ``known`` are dotted keys and values of those options that are possible alone.
    """
    errors: list[ConfigError] = []
    for role, path in ROLES.items():
        kind = _known_backend(known, '.'.join(path))
        if kind is not None and role in kind.rules:
            errors += kind.rules[role](known)
    return errors


def collector_num(known: Mapping[str, Any]) -> int:
    """Returns the number of collectors that share the target of a call."""
    prefix = '.'.join(ROLES['collector'])
    kind = _known_backend(known, prefix)
    start = f'{prefix}.'
    section = {key.removeprefix(start): value for key, value in known.items() if key.startswith(start)}
    return int(kind.collector_num(section)) if kind is not None else 1


def _known_backend(known: Mapping[str, Any], section: str) -> Any:
    name = known.get(f'{section}.backend')
    return BACKEND_REGISTRY.get(name) if isinstance(name, str) and name in BACKEND_REGISTRY else None


def backend_defaults() -> dict[str, Field]:
    """Returns the options of all registered backends, by dotted key."""
    found: dict[str, Field] = {}
    for role, path in ROLES.items():
        start = '.'.join(path)
        for backend in BACKEND_REGISTRY.names():
            own = options_of(backend, role).items()
            found |= {f'{start}.{name}': field for name, field in own if isinstance(field, Field)}
        found[f'{start}.backend'] = BACKENDS[role]
    return found


def chosen_names(tree: Tree) -> Iterator[tuple[Registry[Any], str, Any]]:
    """Yields the registry, the key and the name of all components that a tree chooses, and of network and backends."""
    for part in (*components_of(tree), *named_parts(tree)):
        yield part.registry, f'{part.key}.type', section_at(tree, part.path).get('type', part.default)
    for path in ROLES.values():
        yield BACKEND_REGISTRY, f'{".".join(path)}.backend', section_at(tree, path).get('backend')
    yield MODEL_REGISTRY, 'policy.model.type', value_at(tree, 'policy.model.type')


def named_classes(values: Tree) -> Iterator[tuple[str, str, type[Any]]]:
    """Yields key, name and class of everything in a compiled config that does not come with rlframe."""
    names = list(chosen_names(values))
    hooks = section_at(values, ('policy', 'learn', 'learner', 'hook')).items()
    for key, hook in hooks:
        kind = hook.get('type') if isinstance(hook, Mapping) else None
        names.append((LEARNER_HOOK_REGISTRY, f'policy.learn.learner.hook.{key}.type', kind))
    for registry, key in (
        (LOGGER_REGISTRY, 'loggers'),
        (EVAL_METRIC_REGISTRY, 'policy.eval.evaluator.metrics'),
    ):
        names += [(registry, key, name) for name, _ in chosen(value_at(values, key))]
    for registry, key, name in names:
        if isinstance(name, str) and not registry.is_builtin(name):
            with suppress(
                RegistryError
            ):  # a class that declares no options may mean something else by such a key
                yield key, name, registry.get(name)


def own_modules(values: Tree) -> list[str]:
    """Returns the modules of the user that have classes in a compiled config."""
    classes = [cls for _, _, cls in named_classes(values) if is_importable(cls)]
    return sorted({cls.__module__ for cls in classes if not cls.__module__.startswith('rlframe.')})


def is_importable(value: Any) -> bool:
    """Whether ``value`` is a class or function that its module holds under its own name."""
    module, name = getattr(value, '__module__', None), getattr(value, '__qualname__', None)
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    try:
        found: Any = importlib.import_module(module)
        for step in name.split('.'):
            found = getattr(found, step)
    except (ImportError, AttributeError):
        return False
    return found is value and module != '__main__'
