"""Compiles a config: chooses classes, fills in defaults and checks every key and value, without creating anything.

Precedence, low to high: the defaults that each class declares, ``create_config``, ``main_config``,
command-line overrides, arguments of ``compile_config``.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rlframe.config.backends import drop_replaced_backend
from rlframe.config.ding import from_ding, is_ding, summary
from rlframe.config.rules import cross_errors, cross_warnings, parallel_errors
from rlframe.config.schema import (
    COMM_SECTIONS,
    drop_replaced_defaults,
    find_schema,
    hook_errors,
    hook_parts,
)
from rlframe.config.tree import (
    ALIASES,
    Tree,
    components_of,
    full_key,
    is_parallel,
    leaf_keys,
    parse_overrides,
    section_at,
    set_path,
    user_tree,
)
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning
from rlframe.utils.field import REQUIRED, Field, Options, ResolvedConfig, check_values, to_plain
from rlframe.utils.secrets import redacted_keys
from rlframe.utils.synonyms import ambiguous_name, by_last_part, meant_keys

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig

FORWARDED = {
    'policy.eval.evaluator.n_episode': 'env.n_evaluator_episode',
    'policy.eval.evaluator.stop_value': 'env.stop_value',
    'policy.learn.burn_in': 'policy.other.replay_buffer.burn_in',
    'policy.other.replay_buffer.frame_stack': 'env.frame_stack',
}
"""Options copied from another component's section if both have the same unit; every other option is in the section of
the component that reads it."""


DEVICE_OPTIONS = 'device', 'cuda'
"""The two options that set the device of a policy."""


def compile_config(  # noqa: PLR0913  # DI-engine's users call it with create_cfg, auto and save_cfg
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    seed: int | None = None,
    exp_name: str | None = None,
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
    create_cfg: Mapping[str, Any] | None = None,
    auto: bool = True,
    save_cfg: bool = False,
    env: Any = None,
    renew_dir: bool = True,
    parallel: bool = False,
) -> ExperimentConfig:
    """Merges a config pair with the declared defaults into one checked tree; the pair is not modified.

    Args:
        main_config: The options: ``exp_name``, ``env``, ``policy`` and the other top-level keys.
        create_config: The components: ``type`` and ``import_names`` of each; further keys go to its section.
        overrides: ``key=value`` texts, such as ``policy.learn.batch_size=128`` or ``collector.backend=ray``; or a dict
            of dotted keys and values. The last part of a key is enough if one option alone has it: ``batch_size=128``.
        seed: Overrides the option ``seed``; the next arguments override the options of their names.
        exp_name: Name of the run folder.
        max_env_step: Budget in env steps.
        max_train_iter: Budget in train iterations.
        create_cfg: DI-engine's name for ``create_config``.
        auto: Has no effect: classes are always found by their types; accepted for scripts of DI-engine.
        save_cfg: Has no effect: a run writes its ``total_config.py`` itself; accepted for scripts of DI-engine.
        env: Has no effect: ``env.env_id`` and ``create_config`` name the env; accepted for scripts of DI-engine.
        renew_dir: Has no effect: a run never overwrites the folder of another; accepted for scripts of DI-engine.
        parallel: Whether the config has to be one of parallel mode. A DI-engine config with sections of its parallel mode
            is translated to rlframe's parallel mode then, and to Ray actors otherwise.

    Returns:
        The tree; it records which keys the user set and which have been read.

    Raises:
        ConfigError: If options are unknown or invalid. All mistakes are reported together.
    """
    which = create_cfg if create_config is None else create_config
    main_config, create_config, notes = _translated(main_config, which, overrides, parallel)
    given = dict(seed=seed, exp_name=exp_name, max_env_step=max_env_step, max_train_iter=max_train_iter)
    overrides = _with_full_keys(main_config, create_config, overrides)
    tree, errors = user_tree(main_config, create_config, overrides, given)
    if parallel and not is_parallel(tree):
        raise _not_parallel()
    errors += [_withheld(key) for key in redacted_keys(tree)]
    before = user_tree(main_config, create_config)[0] if overrides and not errors else None
    if before is not None:
        drop_replaced_defaults(tree, before)
        drop_replaced_backend(tree, before)
        drop_replaced_device(tree, overrides)
    classes, options = find_schema(tree, errors)
    _forward_up(tree, options, errors)
    values, found = check_values(tree, options)
    _forward_down(values, options)
    errors += found
    bad = [error.where for error in errors if error.where]
    errors += _component_errors(classes, values, bad) + hook_errors(classes, values)
    known = {key: value for key, value in _leaves(values, options) if not _is_below(key, bad)}
    errors += cross_errors(known)
    if is_parallel(values):
        errors += parallel_errors(known)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)
    for text in (*notes, *cross_warnings(known)):
        warnings.warn(text, ConfigWarning, stacklevel=2)
    if values['seed'] is None:
        values['seed'] = secrets.randbelow(2**32)
        logging.getLogger('rlframe.config').info('seed %d was drawn at random', values['seed'])
    defaults = dict(_leaves(check_values({}, options)[0], options))
    user_keys = [k for k, _ in _leaves(tree, options) if not _same(known[k], defaults[k])]
    may_change = {key: section_at(options, path)[name].may_change for key, path, name in map(_split, known)}
    cfg = ResolvedConfig(values, user_keys, may_change)
    object.__setattr__(dict.__getitem__(cfg, 'policy'), '_whole', cfg)
    return cast('ExperimentConfig', cfg)


def _with_full_keys(
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any] | None,
    overrides: Sequence[str] | Mapping[str, Any],
) -> Sequence[str] | Mapping[str, Any]:
    """Returns overrides with the dotted keys of options that are named by the last part of theirs.

    Raises:
        ConfigError: If several options have a name.
    """
    is_dict = isinstance(overrides, Mapping)
    pairs = [(str(given) if is_dict else str(given).partition('=')[0].strip(), given) for given in overrides]
    if all('.' in key for key, _ in pairs):
        return overrides
    dotted = [given for key, given in pairs if '.' in key]
    rest = {given: overrides[given] for given in dotted} if isinstance(overrides, Mapping) else dotted
    tree, errors = user_tree(main_config, create_config or {}, rest)
    options = {} if errors else find_schema(tree, errors)[1]
    names = {key for key, _ in pairs if '.' not in key} - options.keys() - ALIASES.keys()
    if errors or not names:
        return overrides
    known = {key for key, _ in _leaves(check_values({}, options)[0], options)}
    by_name = by_last_part(key for key in sorted(known) if FORWARDED.get(key) not in known)
    full = {}
    for name in names & by_name.keys():
        found = by_name[name]
        if len(found) == 1:
            full[name] = found[0]
        elif not meant_keys(name, {'policy', *found}):  # else the check of keys says which one is meant
            raise ambiguous_name(name, found, f'Name one by its dotted key, such as {found[0]}.')
    if isinstance(overrides, Mapping):
        return {full.get(key, key): overrides[given] for key, given in pairs}
    return [full.get(key, key) + str(given).strip()[len(key) :] for key, given in pairs]


def overridden_keys(overrides: Sequence[str] | Mapping[str, Any]) -> frozenset[str]:
    """Returns the dotted keys of the options that overrides set."""
    given = overrides if isinstance(overrides, Mapping) else parse_overrides(overrides)
    return frozenset(leaf for key, value in given.items() for leaf in leaf_keys(full_key(key), value))


def drop_replaced_device(tree: Tree, overrides: Sequence[str] | Mapping[str, Any]) -> None:
    """Drops ``policy.cuda`` or ``policy.device`` from the config if an override sets the other one and they disagree."""
    keys, policy = overridden_keys(overrides), cast('Tree', section_at(tree, ['policy']))
    said = {name for name in DEVICE_OPTIONS if f'policy.{name}' in keys and policy[name] is not None}
    if said == {'device'}:
        policy.pop('cuda', None)
    elif said == {'cuda'} and policy['cuda'] == (policy.get('device') == 'cpu'):
        policy.pop('device', None)


def _translated(
    main_config: Mapping[str, Any],
    create_config: Any,
    overrides: Sequence[str] | Mapping[str, Any],
    parallel: bool,
) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
    """Returns the pair with rlframe's keys and, for a DI-engine config, the warnings of its translation."""
    if not isinstance(main_config, Mapping) or not is_ding(create_config, main_config):
        return main_config, create_config, []
    main, create, changes = from_ding(main_config, create_config, overrides, parallel)
    return main, create, [summary(changes)]


def _not_parallel() -> ConfigError:
    """Returns the error for a config that has no sections of parallel mode."""
    return ConfigError(
        'this config has no sections comm_collector and comm_learner, which parallel mode needs',
        where='create_config',
        remedy=f"Add to it: {COMM_SECTIONS}; and commander=dict(type='solo') if another one is named.",
    )


def _withheld(key: str) -> ConfigError:
    """Returns the error for a config that was saved without its secrets."""
    option = key.partition('[')[0]
    what = f'{option}=...' if option == key else f'{option}=[...], the whole list,'
    message = "the value is '***', a placeholder for a secret, as the files of a run never contain secrets"
    return ConfigError(message, where=key, remedy=f'Set {what} again, on the command line or in the config.')


def _split(key: str) -> tuple[str, list[str], str]:
    *path, name = key.split('.')
    return key, path, name


def _is_below(key: str, sections: Sequence[str]) -> bool:
    return any((key + '.').startswith(section + '.') for section in sections)


def split_config(cfg: Mapping[str, Any]) -> tuple[Tree, Tree]:
    """Returns the ``main_config`` and ``create_config`` that compile to ``cfg``; this does not mark options as read."""
    main, (_, options) = to_plain(cfg), find_schema(to_plain(cfg), [])
    create: Tree = {'import_names': main.pop('import_names', [])}
    for key, _ in _forwarded(options):
        *path, name = key.split('.')
        section = section_at(main, path)
        if isinstance(section, dict):
            section.pop(name, None)
    for part in reversed(components_of(main)):
        above = section_at(main, part.path[:-1])
        below = above.get(part.path[-1])
        if isinstance(below, dict):
            create[part.name] = {'type': below.pop('type'), 'import_names': below.pop('import_names')}
        elif isinstance(above, dict):
            above.pop(part.path[-1], None)
    return main, dict(reversed(create.items()))


def unread_user_keys(cfg: ResolvedConfig) -> list[str]:
    """Returns the keys that the user changed from the default and that nothing has read.

    A list or an open dict counts as one key. ``type``, ``import_names`` and ``exp_name`` are never reported.
    """
    options = find_schema(to_plain(cfg), [])[1]
    rows = _forwarded(options)
    copies: dict[str, list[str]] = {}
    for target, source in rows:
        copies.setdefault(source, []).append(target)
    unread = []
    for key in sorted(cfg._user_keys):
        path, _, name = key.rpartition('.')
        if getattr(section_at(options, path.split('.')).get(name), 'ignored', ''):
            continue
        readers = [key, *copies.get(key, ())]
        if name not in ('type', 'import_names', 'exp_name') and not any(
            _was_read(cfg, reader) for reader in readers
        ):
            unread.append(key)
    return unread


def _was_read(cfg: ResolvedConfig, key: str) -> bool:
    *path, name = key.split('.')
    section: Any = cfg
    for step in path:
        section = dict.get(section, step)
        if not isinstance(section, ResolvedConfig):
            return False
    return bool(section.was_read(name))


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False


def _leaves(tree: Mapping[str, Any], options: Options, prefix: str = '') -> list[tuple[str, Any]]:
    """Returns the dotted keys of ``tree`` that are declared options, with their values."""
    found: list[tuple[str, Any]] = []
    for name, value in tree.items():
        option = options.get(name)
        if isinstance(option, Field):
            found.append((prefix + name, value))
        elif isinstance(option, dict) and isinstance(value, Mapping):
            found += _leaves(value, option, f'{prefix}{name}.')
    return found


def _forward_up(tree: Tree, options: Options, errors: list[ConfigError]) -> None:
    """Moves the user's value at a forwarded key to its source key."""
    for target, source in _forwarded(options):
        *path, name = target.split('.')
        declared = section_at(options, path)
        if isinstance(declared, dict) and declared[name].default is REQUIRED:
            declared[name] = dataclasses.replace(declared[name], default=None)
        section = section_at(tree, path)
        if not isinstance(section, dict) or name not in section:
            continue
        value = section.pop(name)
        *source_path, source_name = source.split('.')
        stated = section_at(tree, source_path)
        if source_name not in stated:
            set_path(tree, source.split('.'), value)
        elif not _same(stated[source_name], value):
            message = f'two values: {value!r} here and {stated[source_name]!r} in {source}'
            errors.append(ConfigError(message, where=target, remedy=f'Set {source} alone.'))


def _forward_down(values: Tree, options: Options) -> None:
    for target, source in _forwarded(options):
        *path, name = source.split('.')
        set_path(values, target.split('.'), section_at(values, path)[name])


def _forwarded(options: Options) -> list[tuple[str, str]]:
    """Returns the rows of ``FORWARDED`` that both components declare with the same unit."""

    def unit(key: str) -> str | None:
        *path, name = key.split('.')
        field = section_at(options, path).get(name)
        return field.unit if isinstance(field, Field) else None

    return [row for row in FORWARDED.items() if unit(row[0]) is not None and unit(row[0]) == unit(row[1])]


def _component_errors(classes: Mapping[str, Any], values: Tree, bad: Sequence[str]) -> list[ConfigError]:
    """Checks the rules of each component that has no mistakes so far."""
    errors = []
    for part in (*components_of(values), *hook_parts(values)):
        cls: Any = classes.get(part.name)
        if not hasattr(cls, 'check_config') or any(_is_below(where, [part.key]) for where in bad):
            continue
        found: list[ConfigError] = cls.check_config(ResolvedConfig(to_plain(section_at(values, part.path))))
        for error in found:
            error.where = f'{part.key}.{error.where}' if error.where else part.key
        errors += found
    return errors
