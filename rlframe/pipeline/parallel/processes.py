"""ProcessLauncher: starts workers as child processes, which die with this one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rlframe.errors import WorkerLostError
from rlframe.pipeline.parallel.launcher import Launched, Launcher
from rlframe.registry import LAUNCHER_REGISTRY
from rlframe.run.child_process import ChildProcess
from rlframe.transport.base import Server
from rlframe.utils.serialize import to_bytes

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig


class WorkerProcess(Launched):
    """A worker in a child process. What it prints goes to the log.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        address: Address of the coordinator.
        config: Its config, serialized.
    """

    def __init__(self, role: str, name: str, address: str, config: bytes) -> None:
        super().__init__(role, name)
        logger = logging.getLogger(f'rlframe.{role}')
        try:
            self._process = ChildProcess(
                f'rlframe-{name}',
                'rlframe.pipeline.parallel.child',
                (role, name, address),
                config,
                lambda text: logger.info('%s: %s', name, text),
            )
        except OSError as error:
            raise WorkerLostError(f'no process could be started for {name}: {error}') from error
        self.pid = self._process.pid
        """Its process id, and that of its process group."""

    @property
    def ended(self) -> str | None:
        return self._process.ended

    def end(self, seconds: float) -> None:
        self._process.end(seconds)


@LAUNCHER_REGISTRY.register('flask_fs')
class ProcessLauncher(Launcher):
    """Starts workers as processes of this machine."""

    def __init__(self, cfg: ExperimentConfig, server: Server) -> None:
        super().__init__(cfg, server)
        self._config = to_bytes(cfg, 'config')

    def launch(self, role: str, name: str) -> WorkerProcess:
        """Starts a worker; see ``Launcher.launch``."""
        return WorkerProcess(role, name, self._server.address, self._config)

    def close(self) -> None:
        """Does nothing: processes are ended one by one."""
