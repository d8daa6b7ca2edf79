"""Experiments under Ray Tune: ``RLTrainable`` is one as a trial, ``make_tuner`` searches over the options of a config."""

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
