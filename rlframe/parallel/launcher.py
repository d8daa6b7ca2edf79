"""Launchers: start the workers of a run in threads or child processes, and start those again that are lost."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any

from rlframe.errors import WorkerLostError
from rlframe.parallel.roles import make_worker
from rlframe.parallel.transport.base import Server
from rlframe.registry import LAUNCHER_REGISTRY
from rlframe.run.child_process import ChildProcess
from rlframe.utils.serialize import to_bytes

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig
    from rlframe.parallel.coordinator.coordinator import Coordinator


class Launched(ABC):
    """A worker that was started.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
    """

    def __init__(self, role: str, name: str) -> None:
        self.role, self.name = role, name

    @property
    @abstractmethod
    def ended(self) -> str | None:
        """None while it runs; then how it ended, in words: empty if it left without an error."""

    @abstractmethod
    def end(self, seconds: float) -> None:
        """Asks it to end, and kills it after these seconds; may be called twice."""


class Launcher(ABC):
    """Starts the workers of a run.

    Args:
        cfg: The config of the workers.
        server: The coordinator's end of the transport, which has started.
    """

    def __init__(self, cfg: ExperimentConfig, server: Server) -> None:
        self._cfg, self._server = cfg, server

    @abstractmethod
    def launch(self, role: str, name: str) -> Launched:
        """Starts a worker, without waiting until it has joined.

        Args:
            role: ``'collector'`` or ``'learner'``.
            name: Name of the worker; one that replaces another has the other's name.
        """

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Releases what the launcher itself holds, after all its workers have ended; may be called twice."""


logger = logging.getLogger('rlframe.parallel')

FIRST_PAUSE = 0.5
"""Seconds before a worker that died is replaced; twice as long after each further death within the window."""
LEAVE_SECONDS = 5.0
"""Seconds that workers get to end when they are told to by a signal."""


class Crew:
    """Starts workers, and starts them again if they end before the run is over.

    Args:
        launchers: Start them, by role.
        coordinator: Is told at once of those that ended.
        max_restarts: Replacements of each worker within the window; after more deaths the run ends.
        window: Seconds.
        grace: Seconds that a lost worker, frozen for example, has to come back before it is replaced.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        launchers: Mapping[str, Launcher],
        coordinator: Coordinator,
        max_restarts: int,
        window: float,
        grace: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._launchers, self._coordinator = launchers, coordinator
        self._max_restarts, self._window, self._grace = max_restarts, window, grace
        self._clock = clock
        self.members: dict[str, Launched] = {}
        """The workers by name; those that ended stay until they are replaced."""
        self.restarts = 0
        """Number of replacements so far."""
        self._deaths: dict[str, deque[float]] = {}
        self._due: dict[str, float] = {}  # when a replacement is started, by name

    def start(self, counts: Mapping[str, int]) -> None:
        """Starts as many workers of each role."""
        for role, count in counts.items():
            for name in [role] if count == 1 else [f'{role}-{i}' for i in range(count)]:
                self.members[name] = self._launchers[role].launch(role, name)
                self._deaths[name] = deque()

    def look(self) -> None:
        """Takes note of workers that ended or were lost, and replaces them.

        Raises:
            WorkerLostError: If one ended too often; with how it ended.
        """
        for name, member in self.members.items():
            if name in self._due:
                if self._clock() >= self._due[name]:
                    self._replace(name, member)
            elif (how := member.ended) is not None:
                self._coordinator.lose(member.role, name, how or 'it ended before the run did')
                self._plan(name, how or 'it ended before the run did')
            elif self._coordinator.workers.lost_for(member.role, name) > self._grace:
                member.end(0.0)
                self._coordinator.workers.forget_loss(member.role, name)
                self._plan(name, f'it was lost and did not come back within {self._grace:g} s')

    def _plan(self, name: str, how: str) -> None:
        """Decides when a worker is replaced."""
        deaths, now = self._deaths[name], self._clock()
        deaths.append(now)
        while deaths and now - deaths[0] > self._window:
            deaths.popleft()
        if len(deaths) > self._max_restarts:
            raise WorkerLostError(
                f'{name} ended {len(deaths)} times within {self._window:g} s; at last: {how}',
                where='parallel.max_restarts',
                remedy='The log of the run has its last output.',
            )
        pause = FIRST_PAUSE * 2 ** (len(deaths) - 1)
        logger.warning('%s ended (%s); it is started again in %.1f s', name, how, pause)
        self._due[name] = now + pause

    def _replace(self, name: str, member: Launched) -> None:
        member.end(0.0)
        del self._due[name]
        self.restarts += 1
        self.members[name] = self._launchers[member.role].launch(member.role, name)

    def end(self) -> None:
        """Ends all workers, at the same time; may be called twice."""
        with ThreadPoolExecutor(max(len(self.members), 1), 'rlframe-end') as pool:
            list(pool.map(_end, self.members.values()))  # raises what they raise
        for launcher in self._launchers.values():
            launcher.close()


def _end(member: Launched) -> None:
    member.end(LEAVE_SECONDS if member.ended is None else 0.0)


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
                'rlframe.parallel.roles',
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
