"""Early ends of a run by signals and by code that calls ``sys.exit``; and output without a reader, which does not end it."""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rlframe.errors import RunEndedError

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
        self._before: dict[int, Any] = {s: signal.signal(s, self._catch) for s in self._signals()}
        return self

    def _signals(self) -> tuple[signal.Signals, ...]:
        """Returns the signals to catch."""
        return signal.SIGINT, signal.SIGTERM

    def _end_at_once(self, number: int) -> None:
        """Ends the process at the second signal."""
        if sys.stderr.isatty():
            os.write(2, SHOW_CURSOR)
        os._exit(128 + number)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self._end_at_once(number)
        self.received = number
        with suppress(OSError):  # nobody may read it any longer
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


class Interrupt(StopSignal):
    """Catches Ctrl-C within a ``with`` block of a program that goes on afterwards; the second one is a KeyboardInterrupt.

    Outside the main thread, where Python handles no signals, nothing is caught.
    """

    def __init__(self) -> None:
        super().__init__(notice=b'\nstopping and saving; a second Ctrl-C stops without saving\n')

    def _signals(self) -> tuple[signal.Signals, ...]:
        return (signal.SIGINT,) if threading.current_thread() is threading.main_thread() else ()

    def _end_at_once(self, number: int) -> None:
        raise KeyboardInterrupt


def place_of(error: BaseException) -> str:
    """Returns the place that raised an error, as `` (file:line)``."""
    frames = traceback.extract_tb(error.__traceback__)
    return f' ({Path(frames[-1].filename).name}:{frames[-1].lineno})' if frames else ''


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Turns ``sys.exit`` in the code of a run, such as an env, into an error.

    Raises:
        RunEndedError: With the line of code that called it.
    """
    try:
        yield
    except SystemExit as error:
        raise RunEndedError(
            f'the code of the run tried to end the process, by sys.exit({error.code!r}){place_of(error)}',
            remedy='An env, or other code of the run, called it. If there is a checkpoint, --resume continues from it.',
        ) from error


class _Pipe(io.FileIO):
    """A pipe that drops its output once the reader has left."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Continues a run without its display once the reader of standard output or error has left, as after ``| head``."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_lasting, before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = before


def _lasting(stream: Any) -> Any:
    """Returns a stream that goes on when its reader leaves, if it is Python's own one to a pipe; else the same."""
    buffer = getattr(stream, 'buffer', None)
    raw = getattr(buffer, 'raw', buffer)
    if not isinstance(raw, io.FileIO) or isinstance(raw, _Pipe):
        return stream
    mode = os.fstat(raw.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        return stream
    pipe = _Pipe(raw.fileno(), 'w', closefd=False)
    try:
        stream.flush()
    except BrokenPipeError:
        pipe.write(b'\n')  # what waits in the stream vanishes, too
    return io.TextIOWrapper(io.BufferedWriter(pipe), stream.encoding, stream.errors, line_buffering=True)
