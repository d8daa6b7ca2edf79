"""RemoteLogger: the base class of loggers that send records to a server and cannot take them back."""

from __future__ import annotations

import importlib
import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from rlframe.errors import MissingDependencyError
from rlframe.logger.logger import LoggedRun, Logger, Record

LARGEST = 10_000
"""Bytes of a file with a run id that are read."""


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
        """Returns the id of the server's run that this one continues; empty for a new one."""
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
