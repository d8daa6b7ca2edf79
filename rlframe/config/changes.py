"""What a config that a run is resumed with changes, and what code a config that came as data would import."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.config.compile import FORWARDED, split_config
from rlframe.config.tree import Tree, section_at, user_tree
from rlframe.config.writer import REDACTED, config_data
from rlframe.errors import ConfigError, UnsafeCheckpointError
from rlframe.utils.resolved_config import ResolvedConfig

Data = Mapping[str, Mapping[str, Any]]
"""A config pair as plain data, as ``config_data`` returns it and checkpoints hold it."""

FREE = ('exp_name', 'import_names')
"""Last parts of keys that say nothing about how training goes."""

ABSENT = '(not there)'

CODE = re.compile(r'[A-Za-z_][\w.]*:[A-Za-z_][\w.]*')
"""A value that names something to import: ``module:Class``, or ``module:env id``."""


def check_changes(saved: Data, cfg: ResolvedConfig, where: str) -> list[str]:
    """Compares the config that a run is to go on with to the one that it began with.

    Args:
        saved: The config that the run began with.
        cfg: The config to go on with.
        where: The checkpoint, for the error.

    Returns:
        A line for each key that differs.

    Raises:
        ConfigError: If there are differences that a resumed run cannot have; they are listed with both values.
    """
    now = config_data(*split_config(cfg))
    old, new = (_leaves(_merged(data), cfg._may_change) for data in (saved, now))
    allowed: list[str] = []
    refused: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key, ABSENT), new.get(key, ABSENT)
        if before == after or key.rpartition('.')[2] in FREE or REDACTED in (before, after):
            continue
        line = f'{key}: {before!r} when the run began, {after!r} now'
        (allowed if cfg._may_change.get(key) else refused).append(line)
    if refused:
        raise ConfigError(
            'a resumed run cannot change these keys:\n  ' + '\n  '.join(refused) + '\n',
            where=where,
            remedy='Leave them as they were, or begin a new run; policy.init_from takes over the weights.',
        )
    return allowed


def changeable(cfg: ResolvedConfig) -> Mapping[str, bool]:
    """Returns the dotted keys of a config, and of each whether it may change while a run goes on."""
    return cfg._may_change


def _merged(data: Data) -> Tree:
    tree, _ = user_tree(data['main_config'], data['create_config'])
    for key in FORWARDED:
        *path, name = key.split('.')
        section = section_at(tree, path)
        if isinstance(section, dict):
            section.pop(name, None)
    return tree


def _leaves(tree: Mapping[str, Any], keys: Mapping[str, bool], prefix: str = '') -> dict[str, Any]:
    """Returns dotted keys with values; a dict that is one option's value stays whole."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and prefix + name not in keys:
            found |= _leaves(value, keys, f'{prefix}{name}.')
        else:
            found[prefix + name] = value
    return found


def check_code(data: Data, where: str, allow_import: bool) -> None:
    """Refuses a config that would import modules, unless the user allowed it.

    Registered names, and env ids that Gymnasium knows by itself, need no permission.

    Args:
        data: A config that came as data, in a checkpoint for example.
        where: What it came with, for the error.
        allow_import: Whether the user trusts it.

    Raises:
        UnsafeCheckpointError: With every key that names code.
    """
    found = [] if allow_import else named_code(data)
    if found:
        raise UnsafeCheckpointError(
            f'its config would import code: {", ".join(found)}',
            where=where,
            remedy='If you trust it, add --allow-import.',
        )


RECORDS = {('collect', 'collector'): 'dataset', ('eval', 'evaluator'): 'metric'}
"""Sections of ``policy`` and types of components whose option ``data`` names records."""


def without_records(data: Data) -> Data:
    """Returns a config without the records that it names: who plays episodes with its policy reads none."""
    data = copy.deepcopy(data)
    for (mode, part), kind in RECORDS.items():
        section = section_at(data['main_config'], ('policy', mode, part))
        if data['create_config'].get(part, {}).get('type') == kind and isinstance(section, dict):
            section.pop('data', None)
    return data


def named_code(data: Data) -> list[str]:
    """Returns ``key=value`` of every option whose value names something to import."""
    return [f'{key}={value!r}' for key, value in _named_code(data, '')]


def _named_code(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _named_code(below, f'{key}.{name}' if key else str(name))
    elif key.rpartition('.')[2] == 'import_names' and value:
        yield key, value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named_code(item, key)
    elif isinstance(value, str) and CODE.search(value):
        yield key, value
