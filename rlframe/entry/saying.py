"""Lines on standard output, for whoever reads them and for scripts."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO


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


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to the current ``sys.stderr``."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def tell_what_is_trusted() -> None:
    """Prints each value that ``--trust`` accepts to stderr before it is used."""
    logger = logging.getLogger('rlframe.trust')
    if not any(isinstance(handler, _ToStderr) for handler in logger.handlers):
        handler = _ToStderr()
        handler.setFormatter(logging.Formatter('rlframe: %(message)s'))
        logger.addHandler(handler)
