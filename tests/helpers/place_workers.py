"""A worker for tests of places."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.remote.worker import Worker, answers


def parts(rank: int, incarnation: int) -> Any:
    """Creates what a worker holds; here, so that its process imports neither a test nor torch."""
    return rank


def echo() -> type[Worker]:
    """Returns the class of a worker; a local one, so that a place sends it by value."""

    class Echo(Worker):
        """Returns what it is given, or fails as it is told."""

        with_data = frozenset(['give'])

        @answers
        def echo(self, value: Any) -> tuple[int, int, Any]:
            return self._rank, self._incarnation, value

        def give(self, value: Any) -> tuple[int, Any]:
            return self._rank, np.full(3, value)

        @answers
        def fail(self) -> None:
            raise ZeroDivisionError('by hand')

        @answers
        def end(self, code: int) -> None:
            os._exit(code)

        @answers
        def hang(self) -> None:
            threading.Event().wait()

        @answers
        def close(self) -> None:
            if isinstance(self._parts, str):
                Path(self._parts).touch()

    return Echo
