"""Collection and evaluation with several players: battles, joint policies and past selves."""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
