"""Makes a child process die with its parent, however the parent dies."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

PARENT_CHECK_SECONDS = 0.5
"""Seconds between two checks whether the parent is alive."""


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
