"""The tables of docs/conformance.md, and what they say of options."""

from __future__ import annotations

import ast
import re
from functools import reduce
from typing import Any

from runs import ROOT

from rlframe.registry import POLICY_REGISTRY

PAGE = ROOT / 'docs/conformance.md'


def table(heading: str) -> dict[str, list[str]]:
    """Returns the rows of the table under a heading, cell by cell, by their first cell."""
    text = PAGE.read_text(encoding='utf-8').partition(f'## {heading}\n')[2].partition('\n## ')[0]
    lines = [line for line in text.splitlines() if line.startswith('| `')]
    cells = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
    return {row[0]: row for row in cells}


def options(text: str) -> dict[str, Any]:
    """Returns the options of ours in a cell."""
    return {name: ast.literal_eval(value) for name, value in re.findall(r'`policy\.([\w.]+)=([^`]+)`', text)}


def check_row(pair: Any, cells: list[str]) -> None:
    """Checks what a row says of a pair: its options, what is compared, and our defaults."""
    _, theirs, ours, arguments, compared, defaults, _ = cells
    assert theirs == f'`{pair.peer.rpartition(":")[2]}`'
    assert options(ours) == pair.ours, pair.row
    assert arguments == ' '.join(f'`{key}={value!r}`' for key, value in pair.theirs.items()), pair.row
    logged = {own for own, _ in pair.losses.values()}
    named = set(re.findall('`(.*?)`', re.sub(r'as `\w+`', '', compared)))
    assert named == logged, pair.row
    fields = POLICY_REGISTRY.get(pair.policy).config_fields()
    for key, value in options(defaults).items():
        field = reduce(lambda section, part: section[part], key.split('.'), fields)
        assert getattr(field, 'default', field) == value, f'{pair.row}: {key}'


def all_defaults(rows: dict[str, list[str]], name: str) -> dict[str, Any]:
    """Returns our defaults that differ by a row, and by the row that it refers to."""
    cell = rows[name][5]
    other = re.match(r'as (`\w+`)', cell)
    return (options(rows[other[1]][5]) if other else {}) | options(cell)


def their_defaults(cell: str) -> list[tuple[str, Any]]:
    """Returns the defaults of theirs in a cell."""
    found = re.findall(r'(?:/|and) `(\w+)=([^`]+)`', cell)
    return [(argument, ast.literal_eval(value)) for argument, value in found]
