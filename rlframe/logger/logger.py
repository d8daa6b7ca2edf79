"""Logger: the interface of everything that receives the metrics of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.utils.field import Configurable


class Record(NamedTuple):
    """Numbers that belong to one moment of a run."""

    envstep: int
    """Env steps so far, the x-axis of every plot."""
    values: Mapping[str, float]
    """Numbers by tag, such as ``eval/mean_reward``; they may be NaN or infinite."""
    facts: Mapping[str, Any]
    """What else is known of the moment, such as ``train_iter``."""
    time: float
    """Seconds since 1970."""


class LoggedRun(NamedTuple):
    """The run whose records a logger receives."""

    folder: Path
    """The run folder, which exists."""
    config: Mapping[str, Any]
    """Its ``main_config`` and ``create_config`` as plain data, without secrets."""
    repeated: int = 0
    """Number of records that an earlier process wrote and that the resumed run writes again."""


class Logger(ABC, Configurable):
    """Receives the metrics of a run; a subclass defines ``write``, everything else has a default.

    A logger of a server sets ``reaches = 'network'``: foreign configs may not choose it, and if it raises an exception during
    a run, it is switched off and training continues.

    Args:
        cfg: Options of the logger.
        run: The run.
    """

    follows_tag_style = False
    """Whether its tags are named as the option ``tag_style`` says."""

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        self._cfg: Any = self.resolve_config(cfg)
        self._run = run

    @classmethod
    def check(cls, cfg: Mapping[str, Any]) -> None:
        """Checks that the logger can work here; called before the run folder is created.

        Args:
            cfg: Options of the logger.

        Raises:
            RLFrameError: If it cannot, for example because a package is missing.
        """

    @abstractmethod
    def write(self, record: Record) -> None:
        """Takes one record."""

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Takes an array whose histogram is of interest; by default, ignores it."""

    def add_video(self, tag: str, video: Any, step: int, fps: int) -> None:
        """Takes clips, uint8 [N, T, C, H, W]; by default, ignores them."""

    def flush(self) -> None:
        """Makes sure that no record is lost if the process ends now."""

    def close(self) -> None:
        """Ends the output; may be called twice."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the output, as plain data, for the checkpoint that is being saved."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Removes or marks output that is later than a position, which the resumed run writes again.

        Args:
            state: Result of ``state_dict()`` at the checkpoint; empty if the run had no such logger then.
        """
