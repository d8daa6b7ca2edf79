"""Writes a complete config as ``total_config.py`` and ``config.json``, and compares it with the config of a resumed run."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import numbers
import pprint
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.config.compile import DEVICE_OPTIONS, FORWARDED, user_tree
from rlframe.config.components import (
    backend_defaults,
    components_of,
    find_schema,
    is_importable,
    options_of,
    section_at,
    take_at,
    value_at,
)
from rlframe.config.schema import (
    COMPONENTS,
    HOOKS,
    LOCAL,
    PARALLEL,
    PARALLEL_ONLY,
    REWARD_MODELS,
    ROLES,
    Tree,
)
from rlframe.config.trust import Data, foreign_type
from rlframe.errors import ConfigError
from rlframe.registry import BACKEND_REGISTRY
from rlframe.utils.field import ResolvedConfig, to_plain
from rlframe.utils.files import whole_file, write_private
from rlframe.utils.flat import flat
from rlframe.utils.secrets import REDACTED, redacted
from rlframe.utils.strict_json import FLOAT

FREE = ('exp_name', 'import_names')
"""Last parts of keys that do not affect training."""
COMM = tuple(f'{part.key}.' for part in PARALLEL_ONLY if part.may_change)
"""Sections of the transport, which may change; options that only one of two transports or backends has may change with it."""
ABSENT = '(not there)'

UNPLAYED = {
    'learner': ('hook',),
    'collector': ('data',),
    'evaluator': ('render', 'data'),
    'replay_buffer': ('set_buffer_size',),
}
"""Options of built-in components that reach beyond the run and are not needed for playing episodes."""
MODULE = re.compile(r'[A-Za-z_][\w.]*(?=:[A-Za-z_])')
"""The module of a value such as ``module:Class``."""


class _Code:
    """Python source that ``pprint`` puts in place of a value."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def write_total_config(path: str | Path, main: Mapping[str, Any], create: Mapping[str, Any]) -> None:
    """Writes a config pair as a Python file and, next to it, as ``config.json``.

    Reading the Python file gives an equal pair. Secrets are written as ``'***'`` in both files, which only their owner
    can read. Classes and functions become imports; a value that cannot be written as source is written as a string,
    with a note in the file.

    ``path`` is the Python file, or a folder in which it is called ``total_config.py``.
    """
    file = Path(path)
    file = file / 'total_config.py' if file.is_dir() else file
    _replace(file, total_config_text(main, create))
    data = _as_json({'main_config': redacted(main), 'create_config': redacted(create)}, is_text=True)
    _replace(file.with_name('config.json'), json.dumps(data, indent=2, allow_nan=False) + '\n')


def config_data(main: Mapping[str, Any], create: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config pair as plain data that JSON can hold, without secrets; classes become ``'module:Class'``."""
    data: dict[str, Any] = _as_json({'main_config': redacted(main), 'create_config': redacted(create)})
    return data


def shared_fingerprint(cfg: Mapping[str, Any]) -> str:
    """Returns a hash of the sections that all roles of parallel mode have to share: env, policy and seed.

    Commander, device, budgets and the section ``parallel`` may differ between roles.
    """
    shared = redacted({name: to_plain(cfg)[name] for name in ('env', 'policy', 'seed')})
    for name in DEVICE_OPTIONS:
        shared['policy'].pop(name, None)
    shared['policy']['other'].pop('commander', None)
    text = json.dumps(_as_json(shared, is_text=True), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def total_config_text(main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Returns the source of a config file that defines the two."""
    modules: set[str] = set()
    inexpressible: list[str] = []
    parts = []
    for name, tree in (('main_config', main), ('create_config', create)):
        source = pprint.pformat(
            as_code(redacted(tree), name, modules, inexpressible), width=100, sort_dicts=False
        )
        parts.append(f'{name} = {source}\n')
    head = '"""The complete config of one run, defaults included; it is itself a config."""\n'
    if inexpressible:
        head += ''.join(
            f'# Written as text, because it cannot be written as code: {key}\n' for key in inexpressible
        )
    return '\n'.join([head, *import_block(modules), *parts])


def import_block(modules: set[str]) -> list[str]:
    """Returns the source that imports modules, as one block; none without modules."""
    return [''.join(f'import {module}\n' for module in sorted(modules))] if modules else []


def as_code(value: Any, key: str, modules: set[str], inexpressible: list[str]) -> Any:
    """Converts ``value`` to objects whose ``repr`` is valid source code."""
    if isinstance(value, Mapping):
        return {
            name: as_code(below, f'{key}.{name}', modules, inexpressible) for name, below in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(as_code(item, key, modules, inexpressible) for item in value)
    number = _python_number(value)
    if isinstance(number, float) and not math.isfinite(number):
        return _Code(f"float('{number}')")
    if number is not None or value is None or isinstance(value, bool | str | bytes):
        return value if number is None else number
    if is_importable(value):
        modules.add(value.__module__)
        return _Code(f'{value.__module__}.{value.__qualname__}')
    inexpressible.append(key)
    return _text(value)


def _python_number(value: Any) -> int | float | None:
    """Returns a number, also numpy's, as Python's own; ``None`` for everything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None


def _as_json(value: Any, is_text: bool = False) -> Any:
    """Returns a value as plain data; for a text of JSON, numbers that are not finite are marked, as JSON has none."""
    if isinstance(value, Mapping):
        return {name: _as_json(below, is_text) for name, below in value.items()}
    if type(value) in (list, tuple):
        return [_as_json(item, is_text) for item in value]
    number = _python_number(value)
    if is_text and isinstance(number, float) and not math.isfinite(number):
        return {FLOAT: repr(number)}
    if number is not None:
        return number
    if is_importable(value):
        return f'{value.__module__}:{value.__qualname__}'
    return value if value is None or isinstance(value, bool | str) else _text(value)


def _text(value: Any) -> str:
    """Returns a string for a value that cannot be written as source; the same in every process."""
    return re.sub(r' at 0x[0-9a-f]+', '', str(value))


def _replace(file: Path, text: str) -> None:
    """Writes a whole file or nothing."""
    with whole_file(file) as draft:
        write_private(draft, text)


def split_config(cfg: ResolvedConfig) -> tuple[Tree, Tree]:
    """Returns the ``main_config`` and ``create_config`` that compile to ``cfg``; this does not mark options as read."""
    main = to_plain(cfg)
    create: Tree = {'import_names': main.pop('import_names', [])}
    for key in cfg._sources:
        take_at(main, key)
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

    A list or an open dict counts as one key. ``type``, ``import_names``, ``exp_name`` and None are never reported.
    """
    plain = to_plain(cfg)
    options = find_schema(plain, [])[1]
    copies: dict[str, list[str]] = {}
    for target, source in cfg._sources.items():
        copies.setdefault(source, []).append(target)
    unread = []
    for key in sorted(cfg._user_keys):
        if getattr(value_at(options, key), 'ignored', '') or value_at(plain, key) is None:
            continue
        readers = [key, *copies.get(key, ())]
        if key.rpartition('.')[2] not in ('type', 'import_names', 'exp_name') and not any(
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


class Change(NamedTuple):
    """An option that differs when a run is resumed."""

    key: str
    before: Any
    """Its value in the checkpoint, which an earlier resume may have set."""
    after: Any
    may_change: bool

    def __str__(self) -> str:
        return f'{self.key}: {self.before!r} before, {self.after!r} now'


def check_changes(saved: Data, cfg: ResolvedConfig, where: str) -> list[str]:
    """Compares the config of a resumed run with the config in its checkpoint.

    Args:
        saved: The config in the checkpoint.
        cfg: The config to resume with.
        where: The checkpoint, for the error.

    Returns:
        A line for each key that differs.

    Raises:
        ConfigError: If an option differs that a resumed run cannot change; with both values of each.
    """
    found = changes_of(saved, cfg)
    if refused := [str(change) for change in found if not change.may_change]:
        raise ConfigError(
            'a resumed run cannot change these keys:\n  ' + '\n  '.join(refused) + '\n',
            where=where,
            remedy='Leave them as they were, or start a new run; policy.init_from starts from the weights of this one.',
        )
    return [str(change) for change in found]


def changes_of(saved: Data, cfg: ResolvedConfig) -> list[Change]:
    """Returns the options that differ between the config in a checkpoint and the one to resume with."""
    now = config_data(*split_config(cfg))
    elsewhere = backend_defaults()
    known = {**{key: field.may_change for key, field in elsewhere.items()}, **cfg._may_change}
    old, new = (
        {key: value for key, value in flat(_merged(data), known).items() if value != {} or key in known}
        for data in (saved, now)
    )
    found: list[Change] = []
    for key in sorted(old.keys() | new.keys()):
        default = elsewhere[key].default if key in elsewhere else ABSENT
        before = old.get(key, default)
        after = new.get(key, default)
        if before == after or key.rpartition('.')[2] in FREE or REDACTED in (before, after):
            continue
        is_hook = key.startswith(f'{HOOKS}.')
        if is_hook and ABSENT in (before, after):  # any run may be resumed with other hooks
            continue
        is_of_one = (key.startswith(COMM) or key in elsewhere) and not (key in old and key in new)
        found.append(Change(key, before, after, bool(known.get(key) or is_hook or is_of_one)))
    return found


def changeable(cfg: ResolvedConfig) -> Mapping[str, bool]:
    """Returns the dotted keys of a config, and whether each may change when a run is resumed."""
    return cfg._may_change


def _merged(data: Data) -> Tree:
    tree, _ = user_tree(data['main_config'], data['create_config'])
    for key in FORWARDED:
        take_at(tree, key)
    return tree


def without_parallel(data: Data) -> dict[str, Any]:
    """Returns a config without parallel mode and its commander, which only training needs; a serial one as it is."""
    main, create = (dict(data[name]) for name in ('main_config', 'create_config'))
    if PARALLEL in main or any(part.name in create for part in PARALLEL_ONLY):
        main.pop(PARALLEL, None)
        for name in ('commander', *(part.name for part in PARALLEL_ONLY)):
            create.pop(name, None)
        policy = dict(section_at(main, ('policy',)))
        other = dict(section_at(policy, ('other',)))
        other.pop('commander', None)
        main['policy'] = {**policy, 'other': other}
    return {**data, 'main_config': main, 'create_config': create}


def as_played(data: Data) -> dict[str, Any]:
    """Returns the part of a config needed to play episodes.

    Recorded data, actors and their ladder of eps, hooks, commander, loggers and parallel mode are left out.
    """
    played = copy.deepcopy(without_parallel(data))
    main, create = played['main_config'], played['create_config']
    for part in COMPONENTS:
        which, how = section_at(create, (part.name,)), section_at(main, part.path)
        if not foreign_type(which.get('type', how.get('type')), part.registry):
            _take(UNPLAYED.get(part.name, ()), which, how)
    for role, path in ROLES.items():
        _play_here(role, section_at(create, (role,)), section_at(main, path))
    create.pop('commander', None)
    main.pop('loggers', None)
    main.pop(HOOKS, None)
    main.pop(REWARD_MODELS, None)
    if isinstance(policy := main.get('policy'), dict):
        policy.pop('init_from', None)
        if isinstance(other := policy.get('other'), dict):
            for name in ('commander', 'eps_ladder'):
                other.pop(name, None)
    return played


def _play_here(role: str, *sections: Mapping[str, Any]) -> None:
    """Takes the backend and its options out of the sections of a role, unless a module has to bring it."""
    name = next((section['backend'] for section in sections if 'backend' in section), LOCAL)
    if not (isinstance(name, str) and BACKEND_REGISTRY.is_builtin(name)):
        return
    _take(
        ('backend', *(option for each in BACKEND_REGISTRY.names() for option in options_of(each, role))),
        *sections,
    )


def _take(names: Iterable[str], *sections: Any) -> None:
    for name in names:
        for section in sections:
            take_at(section, name)


def modules_of(data: Any, key: str = '') -> set[str]:
    """Returns the modules that a config names, to locate them; ``trust`` decides which may be imported."""
    if isinstance(data, Mapping):
        return {name for key, below in data.items() for name in modules_of(below, str(key))}
    if isinstance(data, list | tuple):
        return {name for below in data for name in modules_of(below, key)}
    if not isinstance(data, str):
        return set()
    if key == 'import_names':
        return {data}
    found = MODULE.match(data)
    return {found[0]} if found else set()
