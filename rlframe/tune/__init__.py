"""Experiments under Ray Tune: ``RLTrainable`` is one as a trial, ``make_tuner`` searches over the options of a config.

``import rlframe.tune`` is cheap: Ray is imported on first use.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
