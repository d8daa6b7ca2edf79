"""The command line: ``python -m rlframe.entry``, or ``rlframe`` once installed; one module a verb.

A module reads the arguments of its verb, and prints what comes back. What the verb does is a function elsewhere, which
Python can call, too.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
