"""Worker: the code that runs in a place and serves one call at a time; its exceptions travel to who called."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from rlframe.errors import ActorFailedError, ConfigError, RLFrameError
from rlframe.utils.serialize import from_bytes, from_parent, to_bytes


class Failure(NamedTuple):
    """An exception, as it leaves the process that raised it."""

    error: bytes
    """The exception itself, pickled; empty if it cannot be pickled."""
    text: str
    """Type and message of the exception."""
    trace: str
    """Its traceback; empty if it is about an invalid input, and no other exception is its cause."""


def answers(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a worker that returns an exception as a ``Failure``, so that the worker survives it."""

    @functools.wraps(method)
    def answer(*args: Any) -> Any:
        try:
            return method(*args)
        # whatever it is, the caller raises it
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if hasattr(error, 'ray_terminate_msg'):  # Ray ends this process
                raise
            return failure_of(error)

    return answer


class Worker:
    """Serves the calls of a supervisor by methods that are ``answers``; ``launch`` comes first, ``close`` last.

    Args:
        make: Creates the parts of the worker from rank and incarnation; a function, or the bytes of ``to_child``.
        rank: Rank of this worker.
        incarnation: Number of workers lost in its slot before.
        path: Import path of the supervisor's process; None: the worker is in that process.
    """

    role = 'worker'
    """What the worker is called in messages, before its rank."""
    with_data: frozenset[str] = frozenset()
    """Methods that return a pair: the answer, and data beside it, which are fetched when they are needed."""

    def __init__(self, make: Any, rank: int, incarnation: int, path: Sequence[str] | None) -> None:
        self._make, self._rank, self._incarnation = make, rank, incarnation
        self._parts: Any = None
        if path is None:
            return
        sys.path += [place for place in path if place not in sys.path]
        # Ray makes it a SystemExit, which would be an error of the env that happens to step; an actor of coroutines
        # is created in a thread of its own, steps no env, and could not set it
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @answers
    def launch(self) -> Any:
        """Creates the parts, and returns facts about the worker: its process."""
        self._parts = self._made()
        return os.getpid()

    def stop(self) -> None:
        """Ends the running call soon; called by another thread, before ``close``."""

    @answers
    def close(self) -> None:
        """Closes what the worker holds."""

    def _made(self) -> Any:
        make = from_parent(self._make) if isinstance(self._make, bytes) else self._make
        return make(self._rank, self._incarnation)


def failure_of(error: BaseException) -> Failure:
    """Converts an exception for other processes; an exception that would silently end the caller is sent as text."""
    text = f'{type(error).__name__}: {error}'
    is_plain = isinstance(error, ConfigError) and error.__cause__ is None
    trace = '' if is_plain else ''.join(traceback.format_exception(error)).rstrip()
    if not isinstance(error, Exception):
        return Failure(b'', f'{text.removesuffix(": ")} was raised there, not in this process', trace)
    try:
        data = to_bytes(error, 'error')
        same = from_bytes(data)
        is_whole = type(same) is type(error) and str(same) == str(error)
    except Exception:  # exceptions can contain anything, and may fail to unpickle
        is_whole = False
    return Failure(data if is_whole else b'', text, trace)


def raise_failure(failure: Failure, who: str) -> NoReturn:
    """Raises an exception of a worker, with its traceback there, if any, and the worker's name in the first line.

    Raises:
        ActorFailedError: With the text of the exception, if it cannot be unpickled here or its class is unknown.
    """
    error: Exception
    try:
        error = from_bytes(failure.error) if failure.error else ActorFailedError(failure.text, where=who)
    except Exception:  # the class may exist over there only
        error = ActorFailedError(failure.text, where=who)
    if isinstance(error, RLFrameError) and error.where != who:
        error.message = f'{who}: {error.message}'
    elif error.args == (str(error),):
        error.args = (f'{who}: {error}',)
    if failure.trace:
        error.add_note(f'In {who}:\n{failure.trace}')
    raise error
