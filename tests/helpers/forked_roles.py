"""Child processes as forks of the process that starts them, which need not import torch and rlframe again."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import quick_workers

from rlframe.run import child_process


class ForkedWorker(subprocess.Popen[bytes]):
    """Runs the program of a worker in a fork, whose name (``/proc/PID/comm``) is that of the worker."""

    def _execute_child(self, words: Any, *given: Any) -> None:
        kept, (to_child, _, _, from_child) = given[3], given[9:13]
        self.pid = os.fork()
        if self.pid == 0:
            for number, stream in enumerate((to_child, from_child, from_child)):
                os.dup2(stream, number)
            for end in (signal.SIGINT, signal.SIGTERM):
                signal.signal(end, signal.SIG_DFL)
            logging.getLogger('rlframe').handlers.clear()
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            name = re.findall(r"'([^']+)'\)\)", words[-1])[-1]
            Path('/proc/self/comm').write_text(name)
            quick_workers._run(words[-1], sorted(kept), dict(os.environ))
        self._child_created = True
        self._close_pipe_fds(*given[9:15])  # type: ignore[attr-defined]


OF_TESTS: Any = SimpleNamespace(**{**vars(subprocess), 'Popen': ForkedWorker})


def fork_workers() -> None:
    """Lets this process fork the workers that it starts."""
    child_process.subprocess = OF_TESTS


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test fork the child processes of a run, which need not import torch and rlframe again."""
    monkeypatch.setattr(child_process, 'subprocess', OF_TESTS)
