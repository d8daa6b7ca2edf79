"""Collection and evaluation in Ray actors: ``backend='ray'`` in a config, or ``RayCollector`` in Python.

All that calls Ray lies here, also the transport of parallel mode; searches with Ray Tune are in ``tune``. What rows mean
and when episodes end is decided by the workers that the actors hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlframe.backend.ray.collector import RayCollector

__all__ = ['RayCollector']


def __getattr__(name: str) -> Any:
    """Imports Ray when ``RayCollector`` is first used."""
    if name == 'RayCollector':
        from rlframe.backend.ray.session import check_installed

        check_installed(name)
        from rlframe.backend.ray.collector import RayCollector

        return RayCollector
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
