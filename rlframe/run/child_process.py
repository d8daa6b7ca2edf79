"""ChildProcess: a program of this run in a process of its own, which dies with this one."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from types import FrameType
from typing import Any

from rlframe.errors import StallError, WorkerLostError
from rlframe.utils.field import Field

PARENT_CHECK_SECONDS = 0.5
"""Seconds between two checks whether the parent is alive."""
BOOT = """
import sys
sys.path[:] = {path!r}
from rlframe.run.child_process import prepare
prepare({lifeline}, {parent})
from {module} import main
main(*{arguments!r})
"""
"""The program of a child, which reads its data from stdin."""
KILL_SECONDS = 20.0
"""Maximum seconds to wait for a killed process, which ends as soon as a busy machine lets it run."""
READ_SECONDS = 5.0
"""Seconds to wait for the last output of a process that has ended, which others may hold open."""
LAST_LINES = 5
"""Lines of a child's output that are kept, to explain its end."""
STALL_TIMEOUT = Field(
    300.0,
    type=(float, type(None)),
    range='(0, inf)',
    unit='seconds',
    doc='time without progress after which the stacks of all threads are printed to stderr, and a trial of Ray Tune fails; None: never',
    may_change=True,
)
"""Option of a run."""


def die_with_parent(lifeline: int, parent: int) -> None:
    """Makes this process group die with the parent: by the kernel if possible, and by a polling thread.

    The kernel kills at once, also while an env holds Python's lock for ever; the thread covers systems that cannot do
    that, and other processes that hold the parent's end of the lifeline because the parent was forked.

    Args:
        lifeline: File descriptor of a pipe whose other end the parent holds.
        parent: Process id of the parent.
    """
    if hasattr(fcntl, 'F_SETSIG'):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_SECONDS)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=look, name='parent', daemon=True).start()


def killed_by(number: int) -> str:
    """Returns in words which signal killed a process."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal
        name = f'signal {number}'
    return f'killed by {name}; out of memory?' if number == signal.SIGKILL else f'killed by {name}'


class ChildProcess:
    """A process that runs ``main`` of a module; it is the leader of a process group that ends with it.

    Args:
        name: Its name, for the error.
        module: The module.
        arguments: Arguments of its ``main``: plain values.
        data: What it reads from stdin.
        on_line: Called with each line that it prints, except empty ones, in a thread; returns something true if the
            line is a message to this process, which explains nothing about its end. None: it prints where this process does.
        fds: File descriptors that it inherits.
        env: Its environment variables; None: those of this process.

    Raises:
        WorkerLostError: If no process could be started.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: tuple[object, ...],
        data: bytes = b'',
        on_line: Callable[[str], object] | None = None,
        fds: tuple[int, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        hanging, self._lifeline = os.pipe()
        path = [place for place in sys.path if isinstance(place, str)]
        boot = BOOT.format(
            path=path, module=module, arguments=arguments, lifeline=hanging, parent=os.getpid()
        )
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-c', boot],
                stdin=subprocess.PIPE if data else subprocess.DEVNULL,
                stdout=None if on_line is None else subprocess.PIPE,
                stderr=None if on_line is None else subprocess.STDOUT,
                pass_fds=(hanging, *fds),
                process_group=0,
                env=env,
            )
        except OSError as error:
            os.close(self._lifeline)
            raise WorkerLostError(f'no process could be started for {name}: {error}') from error
        finally:
            os.close(hanging)
        self.pid = self._process.pid
        """Its process id, and that of its process group."""
        self._reader: threading.Thread | None = None
        if on_line is not None:
            self._reader = threading.Thread(
                target=self._read, args=(on_line,), name=f'rlframe-{name}', daemon=True
            )
            self._reader.start()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
                stdin.write(data)

    def _read(self, on_line: Callable[[str], object]) -> None:
        assert self._process.stdout is not None  # a pipe
        with self._process.stdout as output:
            for line in output:
                if text := line.decode('utf-8', 'replace').rstrip():
                    is_message = on_line(text)
                    if not is_message:
                        self._last.append(text)

    def _wait_for_output(self) -> None:
        if self._reader is not None:
            self._reader.join(READ_SECONDS)

    @property
    def ended(self) -> str | None:
        """None while it runs; then how it ended, empty if without an error."""
        code = self._process.poll()
        if code is None:
            return None
        if code == 0:
            return ''
        self._wait_for_output()
        if code < 0:
            return killed_by(-code)
        said = next((line for line in reversed(self._last) if line.startswith('rlframe: ')), '')
        return said.removeprefix('rlframe: ') or ': '.join([f'exit code {code}', *list(self._last)[-1:]])

    def leave(self, seconds: float) -> None:
        """Waits up to these seconds for it to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def terminate(self) -> None:
        """Asks it to end."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, seconds: float) -> None:
        """Asks it to end, and kills it and its children after these seconds; may be called twice."""
        if self._process.poll() is None and seconds > 0:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_SECONDS)
        self._wait_for_output()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def prepare(lifeline: int, parent: int) -> None:
    """Prepares a child before its program is imported: it dies with its parent, which alone decides about Ctrl-C.

    Args:
        lifeline: File descriptor of a pipe whose other end the parent holds.
        parent: Process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # an env may print while in the background of a terminal
    os.set_inheritable(lifeline, False)
    die_with_parent(lifeline, parent)


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
