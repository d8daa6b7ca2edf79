"""StallDetector: prints what every thread is doing where a run makes no progress."""

from __future__ import annotations

import faulthandler
from time import monotonic

from rlframe.utils.field import Field

STALL_TIMEOUT = Field(
    300.0,
    (float, type(None)),
    '(0, inf)',
    'seconds',
    'without progress after which the stacks of all threads are printed to stderr; None: never',
    may_change=True,
)
"""Option of a run."""


class StallDetector:
    """Prints the stacks of all threads to stderr when ``beat`` was not called for a while, again and again.

    The watchdog is a thread of the interpreter in C, so that it also works while an env holds the interpreter's lock. There
    is one for the whole process; the run goes on, unless it ``exits``.

    Args:
        seconds: How long a while is; None: nothing is watched.
        file: File descriptor to print to.
        exits: Whether the process ends then, by exit code 1, for somebody who supervises it.
    """

    def __init__(self, seconds: float | None, file: int = 2, exits: bool = False) -> None:
        self._seconds, self._file, self._exits = seconds, file, exits
        self._last = -float('inf')
        self.beat()

    def beat(self) -> None:
        """Says that there was progress; costs next to nothing."""
        if self._seconds is None:
            return
        now = monotonic()
        if now - self._last > self._seconds / 10:
            self._last = now
            faulthandler.dump_traceback_later(
                1.1 * self._seconds, repeat=not self._exits, file=self._file, exit=self._exits
            )

    def close(self) -> None:
        """Ends the watch; may be called twice."""
        if self._seconds is not None:
            self._seconds = None
            faulthandler.cancel_dump_traceback_later()
