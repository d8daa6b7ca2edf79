"""The program of a worker that a ``ProcessLauncher`` starts."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from rlframe.errors import RLFrameError
from rlframe.run.lifeline import die_with_parent
from rlframe.utils.serialize import from_bytes


def main(role: str, name: str, address: str, lifeline: int, parent: int) -> None:
    """Works until the coordinator or SIGTERM ends it; then ends this process.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        address: Address of the coordinator.
        lifeline: File descriptor of a pipe whose other end the parent holds.
        parent: Process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # an env may print while in the background of a terminal
    os.set_inheritable(lifeline, False)
    die_with_parent(lifeline, parent)
    cfg = from_bytes(sys.stdin.buffer.read())
    from rlframe.pipeline.parallel.roles import make_worker

    try:
        worker = make_worker(cfg, role, name, address)

        def stop(*_: Any) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        worker.run()
    except RLFrameError as error:
        sys.stderr.write(f'rlframe: {type(error).__name__}: {" ".join(str(error).split())}\n')
        sys.exit(1)
