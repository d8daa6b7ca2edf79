"""Small helpers that every layer may use and that know nothing of reinforcement learning."""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
