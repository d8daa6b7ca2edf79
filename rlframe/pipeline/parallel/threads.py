"""ThreadLauncher: starts workers as threads of the coordinator's process, for debugging all roles in one place."""

from __future__ import annotations

from typing import Any

from rlframe.pipeline.parallel.launcher import Launched, Launcher
from rlframe.pipeline.parallel.roles import make_worker
from rlframe.registry import LAUNCHER_REGISTRY


class WorkerThread(Launched):
    """A worker in a thread.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        worker: The comm collector or comm learner.
    """

    def __init__(self, role: str, name: str, worker: Any) -> None:
        super().__init__(role, name)
        self._worker = worker
        worker.start()

    @property
    def ended(self) -> str | None:
        """None while it runs; then how it ended."""
        try:
            return '' if self._worker.wait(0) else None
        except Exception as error:
            return f'{type(error).__name__}: {error}'

    def end(self, seconds: float) -> None:
        """Asks it to end, and waits for it; a thread cannot be killed, but its envs and its connection are closed."""
        self._worker.close()


@LAUNCHER_REGISTRY.register('in_process')
class ThreadLauncher(Launcher):
    """Starts workers as threads."""

    def launch(self, role: str, name: str) -> WorkerThread:
        """Starts a worker; see ``Launcher.launch``."""
        return WorkerThread(role, name, make_worker(self._cfg, role, name, transport=self._server.connect()))

    def close(self) -> None:
        """Does nothing: threads end with their workers."""
