"""The budgets of a run: in env steps and in train iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.run.progress import Progress

NO_BUDGET = 10**10
"""Default of both budgets: no limit."""

BUDGETS = {
    'max_env_step': ('envstep', 'env steps', '--env-step'),
    'max_train_iter': ('train_iter', 'updates', '--train-iter'),
}
"""For each budget key: its counter, the counter's unit, and its command line flag."""


def set_budgets(cfg: Mapping[str, Any]) -> list[str]:
    """Returns the keys of the budgets that a config sets."""
    return [key for key in BUDGETS if cfg[key] < NO_BUDGET]


def spent_budgets(cfg: Mapping[str, Any], progress: Progress) -> list[str]:
    """Returns the keys of the budgets that are spent."""
    return [key for key, (counter, *_) in BUDGETS.items() if getattr(progress, counter) >= cfg[key]]
