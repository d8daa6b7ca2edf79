"""Prints the values that ``--trust`` accepts; in a module of its own, as ``--help`` needs no logging."""

from __future__ import annotations

import logging
import sys
from typing import TextIO


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
