"""Launcher: the interface for starting the workers of a parallel run, in whatever place a transport can reach."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from rlframe.transport.base import Server

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig


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

    @abstractmethod
    def close(self) -> None:
        """Releases the launcher's own resources, after all its workers have ended; may be called twice."""
