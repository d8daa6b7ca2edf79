"""Compiles a config: merges what the user set, fills in defaults and checks every key and value; creates nothing.

Precedence, low to high: the defaults that each class declares, ``create_config``, ``main_config``,
command-line overrides, arguments of ``compile_config``.
"""

from __future__ import annotations

import ast
import dataclasses
import logging
import math
import re
import secrets
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from rlframe.config.components import (
    MISSING,
    components_of,
    drop_replaced_backend,
    find_schema,
    full_key,
    hook_errors,
    is_parallel,
    named_parts,
    own_modules,
    plain_type,
    section_at,
    set_path,
    take_at,
    value_at,
)
from rlframe.config.ding import from_ding, is_ding, summary
from rlframe.config.parallel_rules import parallel_errors
from rlframe.config.rules import cross_errors, cross_warnings, without_consequences
from rlframe.config.schema import ALIASES, ALL_COMPONENTS, COMPONENTS, PARALLEL, SECTIONS, Tree
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning
from rlframe.option_names import ambiguous_name, by_last_part, meant_keys
from rlframe.registry import nearest
from rlframe.utils.field import REQUIRED, Field, Options, ResolvedConfig, check_values, raw_items, to_plain
from rlframe.utils.flat import flat
from rlframe.utils.secrets import redacted_keys

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig


MAX_DEPTH = 32
"""Depth of nested sections that a config may have; a config that contains itself has infinite depth."""

TOO_DEEP = f'more than {MAX_DEPTH} nested sections'

RESERVED = frozenset(name for name in dir(ResolvedConfig) if not name.startswith('_'))
"""Methods of the config, which a key of the same name would hide."""

FORWARDED = {
    'policy.eval.evaluator.n_episode': 'env.n_evaluator_episode',
    'policy.eval.evaluator.stop_value': 'env.stop_value',
    'policy.eval.evaluator.stop_success': 'env.stop_success',
    'policy.learn.burn_in': 'policy.other.replay_buffer.burn_in',
    'policy.other.replay_buffer.frame_stack': 'env.frame_stack',
    'policy.other.replay_buffer.hindsight.nstep': 'policy.nstep',
    'policy.other.replay_buffer.hindsight.discount_factor': 'policy.discount_factor',
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
        parallel: Whether to train in parallel mode, whatever the config names. A DI-engine config with sections of its parallel mode
            is translated to rlframe's parallel mode then, and to Ray actors otherwise.

    Returns:
        The tree; it records which keys the user set and which have been read.

    Raises:
        ConfigError: If options are unknown or invalid. All mistakes are reported together.
    """
    # merge what the user set
    which = create_cfg if create_config is None else create_config
    main_config, create_config, notes = _translated(main_config, which, overrides, parallel)
    given = dict(seed=seed, exp_name=exp_name, max_env_step=max_env_step, max_train_iter=max_train_iter)
    overrides = _with_full_keys(main_config, create_config, overrides)
    tree, errors = user_tree(main_config, create_config, overrides, given)
    if parallel and not is_parallel(tree):
        tree[PARALLEL] = {}
    errors += [_withheld(key) for key in redacted_keys(tree)]
    if overrides and not errors:
        before, _ = user_tree(main_config, create_config)
        drop_replaced_defaults(tree, before)
        drop_replaced_backend(tree, before)
        drop_replaced_device(tree, overrides)
    # fill in defaults
    classes, options = find_schema(tree, errors)
    _forward_up(tree, options, errors)
    values, found = check_values(tree, options)
    sources = dict(_forwarded(options))
    for target, source in sources.items():
        set_path(values, target.split('.'), value_at(values, source))
    errors += found
    # check rules
    bad = [error.where for error in errors if error.where]
    errors += _component_errors(classes, values, bad) + hook_errors(classes, values)
    known = {key: value for key, value in declared_values(values, options) if not _is_below(key, bad)}
    errors += cross_errors(known)
    if is_parallel(values):
        errors += parallel_errors(known)
    errors = without_consequences(errors)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)
    # warn, and complete the config
    for text in (*notes, *cross_warnings(known)):
        warnings.warn(text, ConfigWarning, stacklevel=2)
    if values['seed'] is None:
        values['seed'] = secrets.randbelow(2**32)
        logging.getLogger('rlframe.config').info('seed %d was drawn at random', values['seed'])
    more = [module for module in own_modules(values) if module not in values['import_names']]
    values['import_names'] = [*values['import_names'], *more]  # a script may have imported them itself
    defaults = dict(declared_values(check_values({}, options)[0], options))
    user_keys = [k for k, _ in declared_values(tree, options) if not _same(known[k], defaults[k])]
    may_change = {key: value_at(options, key).may_change for key in known}
    cfg = ResolvedConfig(values, user_keys, may_change, sources)
    object.__setattr__(dict.__getitem__(cfg, 'policy'), '_env_and_seed', (cfg['env'], values['seed']))
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
    # find all options
    dotted = [given for key, given in pairs if '.' in key]
    rest = {given: overrides[given] for given in dotted} if isinstance(overrides, Mapping) else dotted
    tree, errors = user_tree(main_config, create_config or {}, rest)
    options = {} if errors else find_schema(tree, errors)[1]
    names = {key for key, _ in pairs if '.' not in key} - options.keys() - ALIASES.keys()
    if errors or not names:
        return overrides
    known = {key for key, _ in declared_values(check_values({}, options)[0], options)}
    by_name = by_last_part(key for key in sorted(known) if FORWARDED.get(key) not in known)
    # complete the keys
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
    return frozenset(flat({full_key(key): value for key, value in given.items()}))


def drop_replaced_device(tree: Tree, overrides: Sequence[str] | Mapping[str, Any]) -> None:
    """Drops ``policy.cuda`` or ``policy.device`` from the config if an override sets the other one and they disagree."""
    keys = overridden_keys(overrides)
    policy = cast('Tree', section_at(tree, ['policy']))
    names = {name for name in DEVICE_OPTIONS if f'policy.{name}' in keys and policy[name] is not None}
    if names == {'device'}:
        policy.pop('cuda', None)
    elif names == {'cuda'} and policy['cuda'] == (policy.get('device') == 'cpu'):
        policy.pop('device', None)


def _translated(
    main_config: Mapping[str, Any],
    create_config: Any,
    overrides: Sequence[str] | Mapping[str, Any],
    parallel: bool,
) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
    """Returns the pair with rlframe's keys and, for a DI-engine config, the warnings of its translation."""
    if not isinstance(main_config, Mapping) or not is_ding(create_config, main_config.keys()):
        return main_config, create_config, []
    main, create, changes = from_ding(main_config, create_config, overrides, parallel)
    return main, create, [summary(changes)]


def _withheld(key: str) -> ConfigError:
    """Returns the error for a config that was saved without its secrets."""
    option = key.partition('[')[0]
    what = f'{option}=...' if option == key else f'{option}=[...], the whole list,'
    message = "the value is '***', a placeholder for a secret, as configs are saved without their secrets"
    return ConfigError(message, where=key, remedy=f'Set {what} again, on the command line or in the config.')


def _is_below(key: str, sections: Sequence[str]) -> bool:
    return any((key + '.').startswith(section + '.') for section in sections)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False


def declared_values(tree: Mapping[str, Any], options: Options, prefix: str = '') -> list[tuple[str, Any]]:
    """Returns the dotted keys of ``tree`` that are declared options, with their values."""
    found: list[tuple[str, Any]] = []
    for name, value in raw_items(tree):
        option = options.get(name)
        if isinstance(option, Field):
            found.append((prefix + name, value))
        elif isinstance(option, dict) and isinstance(value, Mapping):
            found += declared_values(value, option, f'{prefix}{name}.')
    return found


def _forward_up(tree: Tree, options: Options, errors: list[ConfigError]) -> None:
    """Moves the user's value at a forwarded key to its source key."""
    for target, source in _forwarded(options):
        *path, name = target.split('.')
        declared = section_at(options, path)
        if isinstance(declared, dict) and declared[name].default is REQUIRED:
            declared[name] = dataclasses.replace(declared[name], default=None)
        value = take_at(tree, target, MISSING)
        stated = value_at(tree, source, MISSING)
        if value is not MISSING and stated is MISSING:
            set_path(tree, source.split('.'), value)
        elif value is not MISSING and not _same(stated, value):
            message = f'two values: {value!r} here and {stated!r} in {source}'
            errors.append(ConfigError(message, where=target, remedy=f'Set {source} alone.'))


def _forwarded(options: Options) -> list[tuple[str, str]]:
    """Returns the rows of ``FORWARDED`` that both components declare with the same unit."""

    def unit(key: str) -> str | None:
        field = value_at(options, key)
        return field.unit if isinstance(field, Field) else None

    return [row for row in FORWARDED.items() if unit(row[0]) is not None and unit(row[0]) == unit(row[1])]


def _component_errors(classes: Mapping[str, Any], values: Tree, bad: Sequence[str]) -> list[ConfigError]:
    """Checks the rules of each component that has no mistakes so far."""
    errors = []
    for part in (*components_of(values), *named_parts(values)):
        cls: Any = classes.get(part.name)
        if not hasattr(cls, 'check_config') or any(_is_below(where, [part.key]) for where in bad):
            continue
        found: list[ConfigError] = cls.check_config(ResolvedConfig(to_plain(section_at(values, part.path))))
        for error in found:
            error.where = f'{part.key}.{error.where}' if error.where else part.key
        errors += found
    return errors


def drop_replaced_defaults(tree: Tree, before: Tree) -> None:
    """Removes options that only state defaults of a class that an override replaced, as in a complete config.

    ``before`` are the options set by the user without overrides.
    """
    for part in components_of(tree):
        registry = part.registry
        sections = [section_at(side, part.path) for side in (before, tree)]
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


def user_tree(
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    given: Mapping[str, Any] | None = None,
) -> tuple[Tree, list[ConfigError]]:
    """Merges all settings of the user into one tree; later sources win.

    ``overrides`` are ``key=value`` texts, or dotted keys with their values; ``given`` are top-level keys that the caller
    sets, unless to ``None``.

    Returns:
        The tree, and the mistakes found on the way (nothing is raised).
    """
    errors: list[ConfigError] = []
    main = _clean(main_config, '', errors) if _is_section(main_config, 'main_config', errors) else {}
    create = (
        _clean(create_config, 'create_config.', errors)
        if _is_section(create_config, 'create_config', errors)
        else {}
    )
    tree = _lay_create(create, errors)
    _drop_non_sections(main, (), errors)
    _check_types_agree(tree, main, errors)
    _check_no_buffer(create, main, errors)
    merge(tree, main)
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            _override(tree, str(key), value, repr(key), errors)
    else:
        for text in overrides:
            _override_by_text(tree, text, errors)
    tree.update((name, value) for name, value in (given or {}).items() if value is not None)
    return tree, errors


def _is_section(value: Any, where: str, errors: list[ConfigError]) -> bool:
    if not isinstance(value, Mapping):
        errors.append(ConfigError('bad value', where=where, got=value, expected='a dict'))
        return False
    return True


def _bad_section(path: tuple[str, ...], value: Any) -> ConfigError | None:
    """Returns the error for a value in place of a section; only the replay buffer may be none."""
    is_no_buffer = value is None and path == COMPONENTS[-1].path
    if path not in SECTIONS or isinstance(value, dict) or is_no_buffer:
        return None
    return ConfigError('bad value', where='.'.join(path), got=value, expected='a section (a dict)')


def _drop_non_sections(tree: Tree, above: tuple[str, ...], errors: list[ConfigError]) -> None:
    for name, value in list(tree.items()):
        path = (*above, name)
        if error := _bad_section(path, value):
            errors.append(error)
            del tree[name]
        elif isinstance(value, dict) and path in SECTIONS:
            _drop_non_sections(value, path, errors)


def _clean(value: Any, where: str, errors: list[ConfigError]) -> Any:
    """Copies dicts and lists, leaving out the keys that no config can hold."""
    if where.count('.') > MAX_DEPTH:
        if not any(error.message == TOO_DEEP for error in errors):
            errors.append(ConfigError(TOO_DEEP, where='.'.join(where.split('.')[:3]) + '...'))
        return None
    if type(value) in (list, tuple):
        return type(value)(
            [_clean(item, f'{where.rstrip(".")}[{i}].', errors) for i, item in enumerate(value)]
        )
    if not isinstance(value, Mapping):
        return value
    kept = {}
    for name, below in raw_items(value):
        if problem := key_problem(name):
            errors.append(ConfigError(f'bad key {name!r}: {problem}', where=where + str(name)))
        elif name != 'cfg_type':  # DI-engine's default_config() carries it along
            kept[name] = _clean(below, f'{where}{name}.', errors)
    return kept


def key_problem(name: Any) -> str:
    """Says why ``name`` cannot be a key of a config, or returns an empty string."""
    if not isinstance(name, str):
        return f'keys are text, this one is of type {type(name).__name__}'
    if name in RESERVED:
        return 'the name is reserved for a method of EasyDict; choose another'
    if not name or name.startswith('_') or '.' in name:
        return 'a key must not be empty, contain a dot (nest sections instead) or start with an underscore'
    return ''


def check_keys(tree: Any, where: str) -> list[ConfigError]:
    """Returns an error for every key in ``tree`` that no config can hold."""
    errors: list[ConfigError] = []
    _clean(tree, where + '.', errors)
    return errors


def _lay_create(create: Tree, errors: list[ConfigError]) -> Tree:
    tree: Tree = {}
    paths = {part.name: part.path for part in ALL_COMPONENTS}
    for name in (*paths, 'import_names'):  # outer sections before those inside them
        if name not in create:
            continue
        value = create[name]
        if name == 'import_names':
            tree[name] = value
        elif isinstance(value, dict):
            target = dict(section_at(tree, paths[name]))
            set_path(tree, paths[name], {**target, **value})
        elif value is None and name == 'replay_buffer':
            set_path(tree, paths[name], None)
        elif value is not None:
            errors.append(
                ConfigError(
                    'bad value', where=f'create_config.{name}', got=value, expected="dict(type='...')"
                )
            )
    for name in sorted(set(create) - set(paths) - {'import_names'}):
        where = f'create_config.{name}'
        near = nearest(name, [*paths, 'import_names'])
        errors.append(
            ConfigError(
                f'{where} is not a known key.{near}', where=where, remedy=f'Known here: {", ".join(paths)}'
            )
        )
    return tree


def _check_types_agree(tree: Tree, main: Tree, errors: list[ConfigError]) -> None:
    for part in ALL_COMPONENTS:
        which = section_at(tree, part.path).get('type')
        how = section_at(main, part.path).get('type')
        if which is not None and how is not None and plain_type(which) != plain_type(how):
            remedy = f'create_config.{part.name}.type says {which!r}; leave it out of main_config.'
            errors.append(
                ConfigError(f'two types: {how!r} and {which!r}', where=f'{part.key}.type', remedy=remedy)
            )


def _check_no_buffer(create: Tree, main: Tree, errors: list[ConfigError]) -> None:
    """Adds an error if one part of a config turns off the replay buffer and the other part sets options of it."""
    part = COMPONENTS[-1]
    if create.get(part.name, part) is None and (options := section_at(main, part.path)):
        where = f'create_config.{part.name}'
        message = f'it is None, and main_config has options of {part.key}: {", ".join(options)}'
        errors.append(
            ConfigError(message, where=where, remedy='Name a type there, or leave the options out.')
        )


def merge(base: Tree, over: Mapping[str, Any]) -> None:
    """Lays options over others, section by section."""
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            merge(base[name], value)
        else:
            base[name] = value


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Parses ``key=value`` texts into dotted keys and values.

    Raises:
        ConfigError: If one has no such form.
    """
    found = {}
    for text in texts:
        key, equals, value = text.partition('=')
        if not equals:
            raise _malformed(repr(text), text)
        found[key.strip()] = parse_value(value.strip())
    return found


def _override_by_text(tree: Tree, text: str, errors: list[ConfigError]) -> None:
    try:
        ((key, value),) = parse_overrides([text]).items()
    except ConfigError as error:
        errors.append(error)
    else:
        _override(tree, key, value, repr(text), errors)


def _malformed(what: str, got: Any) -> ConfigError:
    form = 'the form key=value, such as policy.learn.batch_size=128'
    return ConfigError(f'malformed override {what}', got=got, expected=form)


def _override(tree: Tree, key: str, value: Any, what: str, errors: list[ConfigError]) -> None:
    """Lays a value over the tree.

    The dotted key may start with an alias. A dict is merged with the existing section; an empty one empties an option, such
    as ``env.schedule``. ``what`` is the override in words, for errors; mistakes are appended to ``errors``.
    """
    path = key.split('.')
    if not all(re.fullmatch(r'[^\s.=]+', name) for name in path):
        errors.append(_malformed(what, what.strip("'")))
        return
    path = [*ALIASES.get(path[0], path[0]).split('.'), *path[1:]]
    bad: list[ConfigError] = []
    value = _clean(value, '.'.join(path) + '.', bad)
    bad += [
        ConfigError(f'bad key {n!r}: {key_problem(n)}', where='.'.join(path)) for n in path if key_problem(n)
    ]
    error = _bad_section(tuple(path), value)
    errors += [*bad, error] if error else bad
    if bad or error:
        return
    try:
        if isinstance(value, dict) and (value or tuple(path) in SECTIONS):
            section: Tree = _clean(section_at(tree, path), '', [])
            merge(section, value)
            value = section
        set_path(tree, path, value)
    except ConfigError as error:
        errors.append(ConfigError(error.message, where=error.where, remedy=f'From the override {what}.'))


def parse_value(text: str) -> Any:
    """Parses ``text`` as a Python literal, ``true``, ``none``, ``inf`` or ``dict(name=...)``; else returns the text.

    The words of a list need no quotes: ``[a.npz, b.npz]``.
    """
    words = {'true': True, 'false': False, 'none': None, 'null': None, 'inf': math.inf, '-inf': -math.inf}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(_Dicts().visit(ast.parse(text.strip(), mode='eval')))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        listed = re.fullmatch(r'\[([^][(){}\'"]+)]', text.strip())
        return [parse_value(word.strip()) for word in listed[1].split(',')] if listed else text


class _Dicts(ast.NodeTransformer):
    """Replaces ``dict(name=...)``, the usual form in configs, by ``{'name': ...}`` without calling anything."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        names = [keyword.arg for keyword in node.keywords]
        is_dict = isinstance(node.func, ast.Name) and node.func.id == 'dict'
        if not is_dict or node.args or None in names:
            return node
        values = [self.visit(keyword.value) for keyword in node.keywords]
        return ast.Dict([ast.Constant(name) for name in names], values)
