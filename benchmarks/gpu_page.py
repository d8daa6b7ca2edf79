"""The page docs/gpu.md, from what gpu.py measured."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from gpu_workloads import BY_HAND, EAGER, LIMIT, SIDES, WORKLOADS, Workload, key_of
from report import number

Cells = Mapping[str, Mapping[str, Any]]

HEAD = """# Measured on a GPU

Written by `python benchmarks/gpu.py`; do not edit. [Training](training.md#on-a-gpu) describes the options."""
NOTHING = """**Nothing was measured on a GPU yet: none was available. rlframe makes no claim about its speed on one.** The commands
below measure it; `python benchmarks/gpu.py` then writes its figures here."""
HOW = """## How to measure

On a machine with an NVIDIA GPU, Python 3.11 or later with its headers, and a C++ compiler (on Debian and Ubuntu:
`apt install g++ python3-dev python3-venv`), in a clone of the repository:

<!-- not run: it needs a machine with a GPU -->
```bash
python3 -m venv .venv && . .venv/bin/activate && pip install -c constraints.txt -e '.[test]' stable_baselines3 && python -m pytest -m gpu ; python benchmarks/gpu.py
```

PyPI's torch for Linux contains CUDA; the driver has to support its version. `pytest -m gpu` tries every policy in every mode.
`benchmarks/gpu.py` prints a line for each cell; after ten minutes (`--minutes`) no further cell begins."""
WHAT = f"""Medians of several blocks after a warm-up, with their range. *by hand* is the same update in eager torch, without metrics and
without a check for finite losses; *sb3* is `train()` of Stable-Baselines3, whose DQN is not double. The other sides are rlframe with the
options that they are named after, in float32 without TF32 unless they name a precision. Transitions lie on the device; rounds of PPO,
sequences of R2D2 and SB3's batches are copied from the host. A cell is given up after {LIMIT} s."""


def rate_text(cell: Mapping[str, Any]) -> str:
    """Returns the median of a cell and its extremes."""
    return f'{number(cell["median"])} ({number(cell["low"])} to {number(cell["high"])})'


def is_measured(cells: Cells, key: str) -> bool:
    """Whether there are figures of a cell."""
    return 'median' in cells.get(key, {})


def ratio(cells: Cells, name: str, side: str, to: str) -> float | None:
    """Returns how many times as fast as another side one is; None if one of them was not measured."""
    keys = key_of(name, side), key_of(name, to)
    if not all(is_measured(cells, key) for key in keys):
        return None
    own, other = (cells[key]['median'] for key in keys)
    return float(own / other)


def best_with_graph(cells: Cells, name: str) -> tuple[str, float] | None:
    """Returns the fastest side of rlframe with a CUDA graph and what the goal counts of it; None if none was measured."""
    workload = WORKLOADS[name]
    sides = [
        s for s in workload.sides if 'cuda_graph' in SIDES.get(s, ()) and is_measured(cells, key_of(name, s))
    ]
    if not sides:
        return None
    side = max(sides, key=lambda s: cells[key_of(name, s)]['median'])
    if workload.case is None:
        return side, cells[key_of(name, side)]['median']
    found = ratio(cells, name, side, EAGER)
    return None if found is None else (side, found)


def goal_row(cells: Cells, name: str, workload: Workload) -> list[str]:
    """Returns the line of a goal."""
    is_loop = workload.case is None
    wanted = f'>= {workload.goal:,.0f} env steps/s' if is_loop else f'>= {workload.goal:g}x eager'
    best = best_with_graph(cells, name)
    if best is None:
        return [workload.title, wanted, 'not measured', '']
    side, value = best
    reached = f'{number(value)} env steps/s' if is_loop else f'{value:.2f}x'
    return [workload.title, wanted, f'{reached} ({side})', 'met' if value >= workload.goal else 'missed']


def side_row(cells: Cells, name: str, side: str) -> list[str]:
    """Returns the line of a cell."""
    cell = cells.get(key_of(name, side), {'skipped': 'not measured'})
    if 'median' not in cell:
        why = f'skipped: {cell["skipped"]}' if 'skipped' in cell else f'failed: {cell["error"]}'
        return [side, textwrap.shorten(why.replace('|', '/'), 80, placeholder=' ...'), '', '']
    ratios = [ratio(cells, name, side, to) for to in (EAGER, BY_HAND)]
    texts = ['' if value is None else f'{value:.2f}x' for value in ratios]
    return [side, f'{number(cell["median"])} ({number(cell["low"])}-{number(cell["high"])})', *texts]


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Returns a table in Markdown."""
    return '\n'.join('| ' + ' | '.join(row) + ' |' for row in (headings, ['---'] * len(headings), *rows))


def goals(cells: Cells) -> str:
    """Returns the section of the goals."""
    rows = [goal_row(cells, name, workload) for name, workload in WORKLOADS.items() if workload.goal]
    text = (
        'The fastest side of rlframe with a CUDA graph counts, against rlframe without one on the same GPU.'
    )
    return f'## Goals\n\n{text}\n\n{table(["what", "goal", "reached", "verdict"], rows)}'


def page(data: Mapping[str, Any] | None) -> str:
    """Returns the text of docs/gpu.md.

    Args:
        data: Content of gpu.json; None or empty: nothing was measured.
    """
    cells: Cells = (data or {}).get('cells', {})
    if not data or not any('median' in cell for cell in cells.values()):
        return '\n\n'.join([HEAD, NOTHING, goals({}), HOW]) + '\n'
    facts = ', '.join(f'{name} {value}' for name, value in data['machine'].items())
    by = f'Measured on {data["date"]} by `{data["command"]}`: {facts}.'
    if data['device'] == 'cpu':
        by = f'**These figures are of a CPU: they show that the script runs.** {by}'
    rows = []
    for name, workload in WORKLOADS.items():
        texts = [f'{workload.title}, {workload.unit}'] + [''] * len(workload.sides)
        rows += [
            [text, *side_row(cells, name, side)] for text, side in zip(texts, workload.sides, strict=False)
        ]
    figures = table(['workload', 'side', 'rate', 'x eager', 'x by hand'], rows)
    return '\n\n'.join([HEAD, by, goals(cells), HOW, '## Figures', WHAT, figures]) + '\n'
