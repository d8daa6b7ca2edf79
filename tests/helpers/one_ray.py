"""The Ray that tests of one process share: started for the first that needs it, ended before one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fork_server
import pytest

OPTIONS = {
    'address': 'local',
    'include_dashboard': False,
    'configure_logging': False,
    'object_store_memory': 75 * 2**20,  # the smallest that Ray takes
}
"""Arguments of ``ray.init`` for a Ray of tests."""
CPUS = 4
"""Of a Ray that tests share."""
WORKER = str(Path(__file__).with_name('forked_worker.py'))
_shared: list[Any] = []


@contextmanager
def forked_workers() -> Iterator[None]:
    """Lets a Ray that is started here fork its workers from a process that has imported torch and rlframe already."""
    from ray._private.parameter import RayParams

    begin = RayParams.__init__

    def with_worker(self: Any, *given: Any, **options: Any) -> None:
        begin(self, *given, **options)
        self.update_if_absent(worker_path=WORKER)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fork_server.ADDRESS, fork_server.start())
        patch.setattr(RayParams, '__init__', with_worker)
        yield


def share(**options: Any) -> Any:
    """Starts Ray with more arguments of ``ray.init``, unless tests share one already, and returns the module."""
    import ray

    if not _shared:
        with forked_workers():
            ray.init(**OPTIONS, **options)
        _shared.append(ray)
    return ray


def end() -> None:
    """Ends the Ray that tests share, if there is one."""
    while _shared:
        _shared.pop().shutdown()
