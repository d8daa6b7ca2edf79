"""ProcessLauncher: starts workers as child processes, which die with this one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

from rlframe.errors import WorkerLostError
from rlframe.pipeline.parallel.launcher import Launched, Launcher
from rlframe.registry import LAUNCHER_REGISTRY
from rlframe.transport.base import Server
from rlframe.utils.serialize import to_bytes

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig

BOOT = """
import sys
sys.path[:] = {path!r}
from rlframe.pipeline.parallel.child import main
main({role!r}, {name!r}, {address!r}, {lifeline}, {parent})
"""
"""The program of a worker, which reads its config from stdin."""
KILL_SECONDS = 5.0
"""Seconds to wait for a killed process."""
LAST_LINES = 5
"""Lines of a worker's output that are kept, to explain its end."""


class WorkerProcess(Launched):
    """A worker in a child process, the leader of a process group that ends with it.

    What it prints goes to the log.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        address: Address of the coordinator.
        config: Its config, serialized.
    """

    def __init__(self, role: str, name: str, address: str, config: bytes) -> None:
        super().__init__(role, name)
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        hanging, self._lifeline = os.pipe()
        path = [place for place in sys.path if isinstance(place, str)]
        boot = BOOT.format(
            path=path, role=role, name=name, address=address, lifeline=hanging, parent=os.getpid()
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-c', boot],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(hanging,),
                process_group=0,
            )
        except OSError as error:
            os.close(self._lifeline)
            raise WorkerLostError(f'no process could be started for {name}: {error}') from error
        finally:
            os.close(hanging)
        self.pid = self._process.pid
        """Its process id, and that of its process group."""
        self._reader = threading.Thread(target=self._read, name=f'rlframe-{name}', daemon=True)
        self._reader.start()
        assert self._process.stdin is not None  # a pipe
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(config)

    def _read(self) -> None:
        """Passes what the worker prints on to the log."""
        logger = logging.getLogger(f'rlframe.{self.role}')
        assert self._process.stdout is not None  # a pipe
        with self._process.stdout as output:
            for line in output:
                text = line.decode('utf-8', 'replace').rstrip()
                if text:
                    self._last.append(text)
                    logger.info('%s: %s', self.name, text)

    @property
    def ended(self) -> str | None:
        """None while it runs; then how it ended."""
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            return ''
        self._reader.join(KILL_SECONDS)
        if code < 0:
            return f'killed by {signal.Signals(-code).name}'
        said = next((line for line in reversed(self._last) if line.startswith('rlframe: ')), '')
        return said.removeprefix('rlframe: ') or f'exit code {code}: {self._last[-1] if self._last else ""}'

    def end(self, seconds: float) -> None:
        """Asks it to end, and kills it and its children after these seconds; may be called twice."""
        if self._process.poll() is None and seconds > 0:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_SECONDS)
        self._reader.join(KILL_SECONDS)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


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
