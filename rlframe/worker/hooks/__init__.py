"""Hooks of a whole run: code that is called when a run begins or ends, collects, evaluates, saves or fails.

These see everything that a run consists of; learner hooks (``rlframe.worker.learner``) surround single updates. The
training doctor is one of them.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
