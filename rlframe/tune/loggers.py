"""Loggers of results that keep every row of a trial that is paused and continued.

Ray's loggers fetch the file from the results folder whenever a trial starts, even if the driver's copy is newer, and
lose the rows since it was last stored (ray 2.60).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback


class _KeepsRows:
    """Fetches a file only if it is missing here: for a driver that continues another driver's search."""

    def _restore_from_remote(self, file_name: str, trial: Any) -> None:
        if not Path(trial.local_path, file_name).is_file():
            super()._restore_from_remote(file_name, trial)  # type: ignore[misc]  # of the logger beside it


class _JsonLogger(_KeepsRows, JsonLoggerCallback):  # type: ignore[misc]  # Ray is untyped
    """Writes ``result.json``."""


class _CSVLogger(_KeepsRows, CSVLoggerCallback):  # type: ignore[misc]  # Ray is untyped
    """Writes ``progress.csv``."""


def loggers() -> list[Any]:
    """Returns a logger of each kind, in place of Ray's own."""
    kinds: list[Any] = [_JsonLogger, _CSVLogger]
    return [kind() for kind in kinds]
