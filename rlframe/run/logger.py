"""Logger, the base class of all loggers, and RemoteLogger, the base class of loggers that send records to a server."""

from __future__ import annotations

import importlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.errors import MissingDependencyError
from rlframe.registry import LOGGER_REGISTRY
from rlframe.utils.component_list import ComponentList
from rlframe.utils.field import Configurable

LOGGERS = ComponentList(
    ['tensorboard'],
    type=list,
    doc='where metrics are written, besides metrics.jsonl; see docs/logging.md',
    may_change=True,
    reaches='network',
    registry=LOGGER_REGISTRY,
)
"""The option ``loggers`` of a config."""
LARGEST = 10_000
"""Bytes of a file with a run id that are read."""


def check_loggers(loggers: Any) -> None:
    """Checks that all loggers of a config can work here.

    Args:
        loggers: Value of the option ``loggers``.

    Raises:
        RLFrameError: If one of them cannot; before anything is written.
    """
    for _, cls, options in LOGGERS.classes(loggers):
        cls.check(cls.resolve_config(options))


class Record(NamedTuple):
    """Numbers that belong to one moment of a run."""

    envstep: int
    """Env steps so far, the x-axis of every plot."""
    values: Mapping[str, float]
    """Numbers by tag, such as ``eval/mean_reward``; they may be NaN or infinite."""
    facts: Mapping[str, Any]
    """Further facts of the moment, such as ``train_iter``."""
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


class RemoteLogger(Logger):
    """Continues the server's run when a run is resumed, without sending any record twice.

    The id of the server's run is kept in the run folder, in a file named after the package.
    """

    reaches = 'network'
    follows_tag_style = True
    package = ''
    """Name of the package that it needs, and of the extra that installs it."""

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self._file = run.folder / f'{self.package}.json'
        self._skipped = run.repeated if self._saved_id() else 0

    @classmethod
    def check(cls, cfg: Mapping[str, Any]) -> None:
        try:
            importlib.import_module(cls.package)
        except ImportError as error:
            raise MissingDependencyError(
                f'the logger {cls.package!r} needs the package {cls.package}',
                where='loggers',
                remedy=f'pip install "rlframe[{cls.package}]"',
            ) from error

    def write(self, record: Record) -> None:
        if self._skipped:
            self._skipped -= 1  # the process that was interrupted has sent it
            return
        self._send(record)

    @abstractmethod
    def _send(self, record: Record) -> None:
        """Sends a record."""

    def _saved_id(self) -> str:
        """Returns the id of the run on the server that this run continues; empty for a new run."""
        if not self._file.is_file() or self._file.stat().st_size > LARGEST:
            return ''
        try:
            found = json.loads(self._file.read_text(encoding='utf-8'))
        except ValueError:
            return ''
        text = found.get('id') if isinstance(found, dict) else None
        return text if isinstance(text, str) and re.fullmatch(r'[\w-]{1,64}', text) else ''

    def _save_id(self, run_id: str, url: str = '') -> None:
        """Keeps the id, and for people the address."""
        facts = {'id': run_id, **({'url': url} if url else {})}
        self._file.write_text(json.dumps(facts) + '\n', encoding='utf-8')
