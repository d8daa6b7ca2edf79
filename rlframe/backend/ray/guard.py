"""A process that outlives a killed run and ends what remains of the Ray that the run started.

The kernel ends Ray's servers together with the process that started them; their agents then try for a minute to report
to a server that is gone, and processes started by actors are not told. All of them write to files in the folder of
Ray's session.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

GRACE_SECONDS = 2.0
"""Time for Ray's processes to end by themselves."""


def start_guard(session_folder: Path) -> subprocess.Popen[bytes] | None:
    """Starts the guard of a Ray that this process started; closing its ``stdin`` ends the guard.

    Args:
        session_folder: Folder of Ray's session.

    Returns:
        The guard; None if the system has no ``/proc``.
    """
    if not Path('/proc/self/fd').exists():
        return None
    return subprocess.Popen(
        [sys.executable, '-I', __file__, str(session_folder), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def guard(session_folder: str, parent: int) -> None:
    """Waits until the parent ends or has closed Ray, then ends every process that Ray leaves behind.

    These are all processes that write into the folder; while the parent, which does so too, is alive, only those that
    Ray's workers left.
    """
    while os.getppid() == parent:
        if select.select([0], [], [], 0.5)[0] and os.getppid() == parent:
            time.sleep(0.1)
            if os.getppid() == parent:  # it let go of Ray in order
                end_writers([f'{session_folder}/logs/worker-'], GRACE_SECONDS)
                return
    time.sleep(GRACE_SECONDS)
    end_writers([f'{session_folder}/'])


def end_writers(prefixes: Sequence[str], grace_s: float = 0.0) -> None:
    """Ends every process of this user with a file open for writing under these prefixes, and waits for it to end.

    Args:
        prefixes: Prefixes of the paths.
        grace_s: Seconds that the processes have to end by themselves.
    """
    begin = time.monotonic()
    while left := writers(prefixes):
        passed = time.monotonic() - begin
        if passed >= grace_s + GRACE_SECONDS:
            return
        if passed >= grace_s:
            for pid in left:
                with contextlib.suppress(OSError):  # it has just ended
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def writers(prefixes: Sequence[str]) -> list[int]:
    """Returns the processes of this user with a file open for writing whose path has one of these prefixes.

    Programs that connected to the Ray by themselves, such as workers of parallel mode, are no remains of it.
    """
    found = []
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            files = _written(f'/proc/{entry}/fd', tuple(prefixes))
            own_log = re.compile(rf'/python-core-driver-[^/]*_{entry}\.log$')
            if files and not any(map(own_log.search, files)):
                found.append(int(entry))
    return found


def _written(descriptors: str, prefixes: tuple[str, ...]) -> list[str]:
    """Returns the files with such a path that a process has open for writing."""
    try:
        names = os.listdir(descriptors)
    except OSError:  # it ended, or is another user's
        return []
    return [path for name in names if (path := _path(f'{descriptors}/{name}')).startswith(prefixes)]


def _path(descriptor: str) -> str:
    """Returns the path of a file that is open for writing; empty for others."""
    try:
        return os.readlink(descriptor) if os.lstat(descriptor).st_mode & stat.S_IWUSR else ''
    except OSError:  # it has just been closed
        return ''


if __name__ == '__main__':
    guard(sys.argv[1], int(sys.argv[2]))
