"""Turns calls that would end the process of a run, such as ``os._exit`` in an env, into errors."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlframe.errors import RunEndedError

hard_exit = os._exit
"""The original ``os._exit``: ends the process at once, even in a guarded block."""


class HardExit(SystemExit):
    """Raised in place of ``os._exit`` in a guarded block; it is an ordinary failure of the env that raises it."""

    def __str__(self) -> str:
        return f'os._exit({self.code})'


@contextmanager
def guarded() -> Iterator[None]:
    """Turns ``os._exit`` in this process into an exception while the block runs.

    Child processes still exit. In threads other than the main one the process ends, with a nonzero exit code and a line
    on stderr, as nobody would see the exception there.
    """
    if os._exit is not hard_exit:  # an outer block is guarding
        yield
        return
    owner = os.getpid()

    def refuse(status: int) -> None:
        if os.getpid() != owner:
            hard_exit(status)
        if threading.current_thread() is threading.main_thread():
            raise HardExit(status)
        os.write(2, f'rlframe: a thread ended the process by os._exit({status})\n'.encode())
        hard_exit(status or 1)

    os._exit = refuse  # type: ignore[assignment]  # it does not return either
    try:
        yield
    finally:
        os._exit = hard_exit


@contextmanager
def told() -> Iterator[None]:
    """Turns an orderly exit of the program, such as ``sys.exit`` in an env, into an error.

    Raises:
        RunEndedError: With the line of code that called it.
    """
    try:
        yield
    except SystemExit as error:
        raise ended_from_inside(error) from error


def place_of(error: BaseException) -> str:
    """Returns the place that raised an error, as `` (file:line)``; for a guarded ``os._exit``, its caller."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return f' ({Path(frames[-1].filename).name}:{frames[-1].lineno})' if frames else ''


def ended_from_inside(error: SystemExit) -> RunEndedError:
    """Returns the error about code that tried to end the process of a run."""
    what = str(error) if isinstance(error, HardExit) else f'sys.exit({error.code!r})'
    ended = RunEndedError(
        f'the code of the run tried to end the process, by {what}{place_of(error)}',
        remedy='An env, or other code of the run, called it. If there is a checkpoint, --resume continues from it.',
    )
    ended.__cause__ = error
    for note in getattr(error, '__notes__', ()):
        ended.add_note(note)
    return ended
