"""The text of ``rlframe import-ding``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.tools.layout import wrapped


def text_of(found: Mapping[str, Any], width: int) -> str:
    """Returns what ``import_ding`` did as text of at most ``width`` columns."""
    lines = [f'wrote {found["file"]}']
    lines += _block('renamed', [f'{row["key"]} -> {row["new"]}' for row in found['renamed']], width)
    lines += _block('converted', [_converted(row) for row in found['converted']], width)
    lines += _block('dropped', _dropped(found['dropped']), width)
    filled = ', '.join(f'{key}={value!r}' for key, value in found['defaults'].items())
    lines += _block("filled in, DI-engine's defaults", [filled] if filled else [], width)
    lines += _block('behaves differently (all in docs/from_ding.md)', found['differs'], width)
    return '\n'.join([*lines, '', f'next: {found["next"]}'])


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
