"""StallDetector: prints the stack of every thread if a run makes no progress."""

from __future__ import annotations

import faulthandler
import signal
import threading
from time import monotonic
from types import FrameType
from typing import Any

from rlframe.errors import StallError
from rlframe.utils.field import Field

STALL_TIMEOUT = Field(
    300.0,
    type=(float, type(None)),
    range='(0, inf)',
    unit='seconds',
    doc='without progress after which the stacks of all threads are printed to stderr, and a trial of Ray Tune fails; None: never',
    may_change=True,
)
"""Option of a run."""


class StallDetector:
    """Prints the stacks of all threads to stderr, repeatedly, while ``beat`` is not called for some time.

    The watchdog is a thread of the interpreter in C, so that it also works while an env holds the interpreter's lock.
    There is one per process; the run continues, unless ``raises`` is set.

    Args:
        seconds: Time without a ``beat`` before the stacks are printed; None: nothing is watched.
        file: File descriptor to print to.
        raises: For a supervised process: whether a ``StallError`` is also raised in the main thread. If nothing changes
            for the same time again, stacks are printed and the process ends with exit code 1.
    """

    def __init__(self, seconds: float | None, file: int = 2, raises: bool = False) -> None:
        self._seconds, self._file, self._raises = seconds, file, raises
        self._handler_before: Any = None
        if raises and seconds is not None and threading.current_thread() is threading.main_thread():
            self._handler_before = signal.signal(signal.SIGALRM, self._raise)
        self._last = -float('inf')
        self.beat()

    def beat(self) -> None:
        """Says that there was progress; costs next to nothing."""
        if self._seconds is None:
            return
        now = monotonic()
        if now - self._last > self._seconds / 10:
            self._last = now
            if self._handler_before is not None:
                signal.setitimer(signal.ITIMER_REAL, 1.1 * self._seconds)
            self._watch((2.2 if self._raises else 1.1) * self._seconds)

    def _watch(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(
            seconds, repeat=not self._raises, file=self._file, exit=self._raises
        )

    def _raise(self, number: int, frame: FrameType | None) -> None:
        assert self._seconds is not None
        self._watch(1.1 * self._seconds)
        raise StallError(
            f'no progress for {self._seconds:g} seconds',
            where='stall_timeout',
            remedy='The traceback shows where it waited. If an env may take so long, raise stall_timeout.',
        )

    def close(self) -> None:
        """Ends the watch; may be called twice."""
        if self._seconds is not None:
            self._seconds = None
            faulthandler.cancel_dump_traceback_later()
            if self._handler_before is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, self._handler_before)
