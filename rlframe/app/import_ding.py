"""``rlframe import-ding``: converts a config of DI-engine to one of rlframe, and lists the changes.

DI-engine is never imported. The translation is the one that ``rlframe train`` applies to such a config.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.app.check_config import config_text, write_new
from rlframe.app.explain import plain
from rlframe.config.ding_convert import Change
from rlframe.errors import ConfigError
from rlframe.pipeline.saying import wrapped


def import_ding(path: str, out: str | None = None, parallel: bool = False) -> dict[str, Any]:
    """Translates a config of DI-engine and writes it.

    Args:
        path: The config, a Python file of the user, which is executed as configs are.
        out: The file to write; by default ``NAME_rlframe.py`` in the current folder.
        parallel: Whether a config of DI-engine's parallel mode becomes one of rlframe's, or one with Ray actors.

    Returns:
        The ``file``, what was ``renamed``, ``converted`` and ``dropped``, and the ``defaults`` that were filled in, as
        JSON-able data.

    Raises:
        ConfigError: If it is no config of DI-engine, cannot be translated, or the file exists.
    """
    main, create = config.read_config(path)
    if not config.is_ding(create, main):
        remedy = 'rlframe train -c takes it as it is.'
        raise ConfigError('this is no config of DI-engine', where=path, remedy=remedy)
    file = Path(f'{Path(path).stem}_rlframe.py' if out is None else out)
    if file.suffix != '.py':
        raise ConfigError('bad value', where='--out', got=str(file), expected='a path that ends with .py')
    translated = config.from_ding(main, create, parallel=parallel)
    mode = ' -m parallel' if parallel else ''
    command = f'rlframe train -c {file}{mode}'
    facts = ["Options that the original left out have DI-engine's defaults.", '', f'    {command}']
    name = re.sub(r'[^\w.-]', '_', Path(path).name)  # it becomes part of a docstring
    head = f'Translated from {name}, a config of DI-engine, by rlframe import-ding.'
    write_new(file, config_text(head, facts, translated.main_config, translated.create_config))
    return {'file': str(file), **_told(translated.changes), 'next': command}


def _told(changes: Iterable[Change]) -> dict[str, Any]:
    """Returns the changes of a translation by kind."""
    found: dict[str, Any] = {'renamed': [], 'converted': [], 'dropped': [], 'defaults': {}}
    for change in changes:
        became = plain(change.became)
        if not change.key:
            found['defaults'] |= became
        elif not change.became:
            found['dropped'].append({'key': change.key, 'why': change.reason})
        elif list(change.became.values()) == [change.value] and not change.reason:
            found['renamed'].append({'key': change.key, 'new': next(iter(became))})
        else:
            found['converted'].append(
                {'key': change.key, 'value': plain(change.value), 'new': became, 'why': change.reason}
            )
    return found


def text_of(found: Mapping[str, Any], width: int) -> str:
    """Returns the result of ``import_ding`` as text of at most ``width`` columns."""
    lines = [f'wrote {found["file"]}']
    lines += _block('renamed', [f'{row["key"]} -> {row["new"]}' for row in found['renamed']], width)
    lines += _block('converted', [_converted(row) for row in found['converted']], width)
    lines += _block('dropped', _dropped(found['dropped']), width)
    filled = ', '.join(f'{key}={value!r}' for key, value in found['defaults'].items())
    lines += _block("filled in, DI-engine's defaults", [filled] if filled else [], width)
    differs = wrapped('What behaves differently from DI-engine is in docs/from_ding.md.', 0, width)
    return '\n'.join([*lines, '', *differs, f'next: {found["next"]}'])


def _block(heading: str, texts: list[str], width: int) -> list[str]:
    if not texts:
        return []
    lines = [line for text in texts for line in wrapped(text, 2, width)]
    return ['', f'{heading}:', *lines]


def _converted(row: Mapping[str, Any]) -> str:
    new = ', '.join(f'{key}={value!r}' for key, value in row['new'].items())
    why = f' ({row["why"]})' if row['why'] else ''
    return f'{row["key"]}={row["value"]!r} -> {new}{why}'


def _dropped(rows: list[Mapping[str, Any]]) -> list[str]:
    """Returns a text for each reason."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row['why'], []).append(row['key'])
    return [f'{", ".join(keys)}: {why}' for why, keys in by_reason.items()]
