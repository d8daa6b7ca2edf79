"""The command line: ``python -m rlframe.entry``, or ``rlframe`` once installed; ``verbs`` has all its verbs.

Each module reads the arguments of its verb and prints the result. The work itself is done by functions that Python programs
can call, too.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
