"""The Ray that tests of one process share: started for the first that needs it, ended before one that does not."""

from __future__ import annotations

from typing import Any

OPTIONS = {
    'address': 'local',
    'include_dashboard': False,
    'configure_logging': False,
    'object_store_memory': 200 * 2**20,
}
"""Arguments of ``ray.init`` for a Ray of tests."""
_shared: list[Any] = []


def share(**options: Any) -> Any:
    """Starts Ray with more arguments of ``ray.init``, unless tests share one already, and returns the module."""
    import ray

    if not _shared:
        ray.init(**OPTIONS, **options)
        _shared.append(ray)
    return ray


def end() -> None:
    """Ends the Ray that tests share, if there is one."""
    while _shared:
        _shared.pop().shutdown()
