"""Serial collectors: they step envs with a policy and return training samples.

A collector consists of a ``Rollout`` that steps, an ``EpisodeLog`` that counts and a recorder that cuts trajectories.
Collectors for several players are here, too; those in Ray actors are in ``backend``.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
