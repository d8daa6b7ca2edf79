"""Functions that hand-written training loops of DI-engine import from its ``entry.utils``."""

from rlframe.pipeline.build import random_collect

__all__ = ['random_collect']
