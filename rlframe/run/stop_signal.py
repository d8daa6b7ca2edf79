"""Ctrl-C and SIGTERM: the loop saves at its next safe point; a second signal ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from rlframe.run.exit_guard import hard_exit

SHOW_CURSOR = b'\x1b[?25h\n'
"""Resets the terminal after a live line."""


NOTICE = b'\nstopping and saving; a second signal ends the process at once\n'
"""Written at the first signal."""


class StopSignal:
    """Catches SIGINT and SIGTERM within a ``with`` block.

    Args:
        then: Called at the first signal.
        notice: Written to standard error at the first signal.
    """

    received: int | None = None
    """The signal that was caught, or None."""

    def __init__(self, then: Callable[[], object] | None = None, notice: bytes = NOTICE) -> None:
        self._then, self._notice = then, notice

    def __enter__(self) -> StopSignal:
        self._before: dict[int, Any] = {
            s: signal.signal(s, self._catch) for s in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if sys.stderr.isatty():
                os.write(2, SHOW_CURSOR)
            hard_exit(128 + number)
        self.received = number
        os.write(2, self._notice)
        if self._then is not None:
            self._then()

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as a shell has it; 0 if none came."""
        return 0 if self.received is None else 128 + self.received
