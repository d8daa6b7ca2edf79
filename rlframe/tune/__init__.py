"""Experiments under Ray Tune: ``RLTrainable`` is one as a trial, ``make_tuner`` searches over the options of a config.

``import rlframe.tune`` is cheap: Ray is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.tune.report import Report, write_report
    from rlframe.tune.space import parse_domain
    from rlframe.tune.trainable import RLTrainable
    from rlframe.tune.trial import TrialBase
    from rlframe.tune.tuner import make_tuner, restore_tuner

__all__ = [
    'RLTrainable',
    'Report',
    'TrialBase',
    'make_tuner',
    'parse_domain',
    'restore_tuner',
    'write_report',
]

_MODULES = {
    'RLTrainable': 'trainable',
    'Report': 'report',
    'TrialBase': 'trial',
    'make_tuner': 'tuner',
    'parse_domain': 'space',
    'restore_tuner': 'tuner',
    'write_report': 'report',
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(f'{__name__}.{_MODULES[name]}'), name)
