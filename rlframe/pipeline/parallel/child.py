"""The program of a worker that a ``ProcessLauncher`` starts."""

from __future__ import annotations

import signal
import sys
from typing import Any

from rlframe.errors import RLFrameError
from rlframe.utils.serialize import from_bytes


def main(role: str, name: str, address: str) -> None:
    """Works until the coordinator or SIGTERM ends it; then ends this process.

    Args:
        role: ``'collector'`` or ``'learner'``.
        name: Name of the worker.
        address: Address of the coordinator.
    """
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
