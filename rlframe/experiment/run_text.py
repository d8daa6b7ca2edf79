"""A run in one line, and as a table of a notebook."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from rlframe.display.saying import short_path
from rlframe.run.evaluations import evaluation_of
from rlframe.scores import number_text

if TYPE_CHECKING:
    from rlframe.experiment.run import Run


def run_text(run: Run) -> str:
    """Returns a run in one line."""
    best = f', best evaluation {number_text(run.best)}' if not math.isnan(run.best) else ''
    return (
        f'Run({short_path(run.folder)!r}: {run.config.policy.type} on {run.env_name},'
        f' {run.progress.envstep:,} env steps{best}{", solved" if run.solved else ""})'
    )


def run_table(run: Run) -> str:
    """Returns the facts of a run as a table in HTML."""
    facts = {
        'folder': short_path(run.folder),
        'policy': str(run.config.policy.type),
        'env': run.env_name,
        'env steps': f'{run.progress.envstep:,}',
        'updates': f'{run.progress.train_iter:,}',
        'best evaluation': _best(run),
        'solved': 'yes' if run.solved else 'no',
    }
    left = 'style="text-align:left"'
    rows = ''.join(
        f'<tr><th {left}>{name}</th><td {left}>{html.escape(text)}</td></tr>' for name, text in facts.items()
    )
    return f'<table>{rows}</table>'


def _best(run: Run) -> str:
    if math.isnan(run.best):
        return 'none'
    found = evaluation_of(run.folder, run.best)
    interval = None if found is None else found.interval
    return number_text(run.best) + (f' (95 % interval {interval})' if interval is not None else '')
