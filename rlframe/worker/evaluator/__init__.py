"""Serial evaluators: they measure a policy by the returns of whole episodes, or by metrics on data.

They step envs by the ``Rollout`` of the collectors. When to evaluate is decided by commander and pipeline.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
