"""Lines on standard output, for whoever reads them and for scripts."""

from __future__ import annotations

import sys
from pathlib import Path


def say(text: str) -> None:
    """Writes a line, at once."""
    sys.stdout.write(text + '\n')
    sys.stdout.flush()


def short_path(path: Path) -> str:
    """Returns a path as it is written in the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
