"""SharedPayloads: payloads that several workers get, each of which is written once."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.errors import NoRoomError
from rlframe.transport.flask_fs.folder import SHARED, SharedFolder

MOST_NAMES = 8
"""Names whose newest payload is kept for the next worker that asks."""


class _Written(NamedTuple):
    """A payload, and the file that it is in."""

    payload: Any
    file: Path


class SharedPayloads:
    """Writes a payload when it is first asked for, and gives each worker a hard link to that file.

    The file stays until another payload takes its place under the same name; the links belong to the workers. So
    the bytes are on the disk once, until the last worker has read them and they have been replaced.

    Args:
        folder: Where the files are.
        number: Number in their names, which no connection has.
    """

    def __init__(self, folder: SharedFolder, number: int) -> None:
        self._folder, self._number, self._count = folder, number, 0
        self._lock = threading.Lock()
        self._written: dict[str, _Written] = {}  # the one that was asked for last comes last

    def give(self, name: str, payload: Any, file: Path) -> None:
        """Makes a payload available to a worker.

        Args:
            name: Name of the payload. A different object under the same name takes its place.
            payload: The payload, which nobody changes.
            file: The file that the worker reads and deletes.

        Raises:
            PayloadError: If it cannot be written.
        """
        with self._lock:
            found = self._written.pop(name, None)
            if found is None or found.payload is not payload:
                self._delete(found)
                found = self._write(payload)
            self._written[name] = found
            while len(self._written) > MOST_NAMES:
                self._delete(self._written.pop(next(iter(self._written))))
            with suppress(OSError):  # this file system may have no hard links
                os.link(found.file, file)
                return
        self._folder.write(file, payload)

    def _write(self, payload: Any) -> _Written:
        file = self._folder.payload_file(self._number, self._count, SHARED)
        self._count += 1
        try:
            self._folder.write(file, payload)
        except NoRoomError:
            while self._written:
                self._delete(self._written.popitem()[1])
            self._folder.write(file, payload)
        return _Written(payload, file)

    def _delete(self, written: _Written | None) -> None:
        if written is not None:
            written.file.unlink(missing_ok=True)
