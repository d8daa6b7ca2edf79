"""Writes the first lines of each section of ``docs/algorithms.md`` from the policy classes and the measured rows.

usage: python docs/make_algorithms.py

Formulas and tables of the page, from the line with the paper on, are written by hand.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from results_rows import read_rows, read_runs, shown

from rlframe.policy.parts.ding_names import DingNames
from rlframe.registry import POLICY_REGISTRY

FILE = Path(__file__).with_name('algorithms.md')
PAPER = '**Paper:** '
"""Begin of the first line of a section that is written by hand."""


def main() -> None:
    """Writes the page."""
    FILE.write_text(page(), encoding='utf-8')


def page() -> str:
    """Returns the text of the page, with the present texts of the classes."""
    head, *sections = re.split('^(?=## `)', FILE.read_text(encoding='utf-8'), flags=re.MULTILINE)
    rows = read_rows()
    measured: dict[str, list[str]] = {}
    for name in shown(read_runs()):
        if name in rows:
            measured.setdefault(rows[name].sections[1]['policy']['type'], []).append(f'`{name}`')
    return head + ''.join(_section(section, measured) for section in sections)


def _section(section: str, measured: dict[str, list[str]]) -> str:
    """Returns a section of the page with a new beginning."""
    (name,) = re.findall(r'^## `(\w+)`', section)
    cls: Any = POLICY_REGISTRY.get(name)
    text, _, source = (inspect.getdoc(cls) or '').replace('``', '`').partition('\nSource:\n')
    lines = [f'## `{name}`', text.strip(), f'**Source:** {" ".join(source.split())}']
    if name in measured:
        lines.append(f'**Measured:** {", ".join(measured[name])} ([results](results.md)).')
    if names := _ding_names(cls.ding):
        lines.append(f'**DI-engine:** {names}.')
    _, mark, written = section.partition(PAPER)
    return '\n\n'.join([*lines, mark + written])


def _ding_names(ding: DingNames) -> str:
    """Returns the words about DI-engine's own names and defaults of a policy; '' if there are none."""
    parts = [f'`{ding.type}` is its name there'] if ding.type else []
    parts += [f'`policy.{old}` is `policy.{new}`' for old, new in ding.options.items()]
    by_reason: dict[str, list[str]] = {}
    for key, reason in ding.unused.items():
        by_reason.setdefault(reason, []).append(f'`policy.{key}`')
    parts += [f'{", ".join(keys)}: {reason}' for reason, keys in by_reason.items()]
    if ding.defaults:
        parts.append(
            'defaults ' + ', '.join(f'`policy.{key}={value!r}`' for key, value in ding.defaults.items())
        )
    return '; '.join(parts)


if __name__ == '__main__':
    main()
