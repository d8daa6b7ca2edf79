"""Workers: the parts of an experiment, under the names that DI-engine's users know.

Registries create them from their config sections; they do not know each other. A pipeline connects them. The workers of
parallel mode and of Ray are exported here and live in ``parallel`` and ``backend``.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
