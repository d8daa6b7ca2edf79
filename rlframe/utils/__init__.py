"""Helpers that every room may use and that know nothing of reinforcement learning.

``Field`` and ``Configurable`` say how a class declares options; schemas check saved states; foreign files, secrets and
names are read here with limits. A helper that only one room uses belongs to that room.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
