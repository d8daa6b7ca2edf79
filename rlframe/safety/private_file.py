"""Creates files that only their owner can read, whatever the umask."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600
"""Mode of files that may contain secrets."""


def private_opener(path: str, flags: int) -> int:
    """Opens a file for ``open(..., opener=...)``; an existing file keeps its content and becomes private."""
    descriptor = os.open(path, flags, PRIVATE)
    with suppress(OSError, AttributeError):  # a file of another user, or Windows
        os.fchmod(descriptor, PRIVATE)
    return descriptor


def write_private(path: Path, text: str) -> None:
    """Writes a text file that only its owner can read."""
    with open(path, 'w', encoding='utf-8', errors='backslashreplace', opener=private_opener) as file:
        file.write(text)
