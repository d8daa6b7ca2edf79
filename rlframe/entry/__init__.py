"""The command line: ``python -m rlframe.entry``, or ``rlframe`` once installed; one short file a verb."""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
