"""Merges the user's settings into one tree: ``create_config``, ``main_config`` and overrides.

Only the keys themselves are checked here; ``rlframe.config`` merges the tree with the declared options.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY, REGISTRIES, Registry, nearest
from rlframe.utils.field import ResolvedConfig, raw_items

Tree = dict[str, Any]


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
    """Its registry if that is not the one of its name."""

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

PARALLEL = 'parallel'
"""Section that only configs of parallel mode have."""
PARALLEL_ONLY = (
    Component('comm_collector', (PARALLEL, 'comm_collector'), None, may_change=True),
    Component('comm_learner', (PARALLEL, 'comm_learner'), None, may_change=True),
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

MAX_DEPTH = 32
"""Depth of nested sections that a config may have; a config that contains itself has infinite depth."""

TOO_DEEP = f'more than {MAX_DEPTH} nested sections'

RESERVED = frozenset(name for name in dir(ResolvedConfig) if not name.startswith('_'))
"""Methods of the config, which a key of the same name would hide."""


def user_tree(
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    given: Mapping[str, Any] | None = None,
) -> tuple[Tree, list[ConfigError]]:
    """Lays everything the user said into the merged tree; later sources win.

    Args:
        main_config: How.
        create_config: Which.
        overrides: ``key=value`` texts, or dotted keys with their values.
        given: Top-level keys that the caller sets, unless to ``None``.

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


def plain_type(name: Any) -> Any:
    """Returns a policy's name without the ``_command`` that DI-engine appends."""
    return name.removesuffix('_command') if isinstance(name, str) else name


def _check_types_agree(tree: Tree, main: Tree, errors: list[ConfigError]) -> None:
    for part in ALL_COMPONENTS:
        which, how = section_at(tree, part.path).get('type'), section_at(main, part.path).get('type')
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


def leaf_keys(key: str, value: Any) -> list[str]:
    """Returns the dotted keys that an option sets: its own, or those in it if it is a section."""
    if isinstance(value, Mapping) and value:
        return [leaf for name, below in raw_items(value) for leaf in leaf_keys(f'{key}.{name}', below)]
    return [key]


def full_key(key: str) -> str:
    """Returns a dotted key with an alias at its start expanded."""
    first, *rest = key.split('.')
    return '.'.join([ALIASES.get(first, first) if rest else first, *rest])


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

    Args:
        tree: The tree to change.
        key: Dotted key, which may start with an alias.
        value: A dict is merged with the existing section.
        what: The override in words, for errors.
        errors: Mistakes are appended to it.
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
        if isinstance(value, dict):
            value = _laid_over(section_at(tree, path), value)
        set_path(tree, path, value)
    except ConfigError as error:
        errors.append(ConfigError(error.message, where=error.where, remedy=f'From the override {what}.'))


def _laid_over(section: Mapping[str, Any], value: Tree) -> Tree:
    merged: Tree = _clean(section, '', [])
    merge(merged, value)
    return merged


def parse_value(text: str) -> Any:
    """Parses ``text`` as a Python literal, ``true``, ``none``, ``inf`` or ``dict(name=...)``; else returns the text."""
    words = {
        'true': True,
        'false': False,
        'none': None,
        'null': None,
        'inf': float('inf'),
        '-inf': float('-inf'),
    }
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(_Dicts().visit(ast.parse(text.strip(), mode='eval')))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


class _Dicts(ast.NodeTransformer):
    """Replaces ``dict(name=...)``, the usual form in configs, by ``{'name': ...}`` without calling anything."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        names = [keyword.arg for keyword in node.keywords]
        is_dict = isinstance(node.func, ast.Name) and node.func.id == 'dict'
        if not is_dict or node.args or None in names:
            return node
        values = [self.visit(keyword.value) for keyword in node.keywords]
        return ast.Dict([ast.Constant(name) for name in names], values)
