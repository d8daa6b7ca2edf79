"""Workers of env managers as forks of the process that runs the tests: a start takes 0.02 s instead of 0.7 s.

All managers of a test module that imports ``quick_workers`` do so. In ``test_subprocess.py`` some start them as users do.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import pytest

from rlframe.envs import worker_pool, worker_process
from rlframe.run import child_process


@pytest.fixture(autouse=True)
def quick_workers(forked_workers: None) -> None:
    """Lets env managers fork their workers, in every test."""


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets env managers fork their workers."""
    real = {name: getattr(subprocess, name) for name in ('PIPE', 'STDOUT', 'DEVNULL', 'TimeoutExpired')}

    class OfWorkers(worker_process.WorkerProcess):
        def __init__(self, *given: Any) -> None:
            with mock.patch.object(child_process, 'subprocess', SimpleNamespace(Popen=Fork, **real)):
                super().__init__(*given)

    monkeypatch.setattr(worker_pool, 'WorkerProcess', OfWorkers)


class Fork:
    """What a ``WorkerProcess`` needs of ``subprocess.Popen``."""

    def __init__(self, words: Sequence[str], *, pass_fds: Any, env: Mapping[str, str], **_: Any) -> None:
        self._status: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)  # of threads, which the fork does without
            self.pid = os.fork()
        if self.pid == 0:
            _run(words[-1], sorted(pass_fds), env)
        with suppress(OSError):  # whoever is first
            os.setpgid(self.pid, self.pid)

    stdin = stdout = None

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired('a fork', seconds)
            time.sleep(0.001)

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _run(program: str, kept: list[int], env: Mapping[str, str]) -> NoReturn:
    """Runs a program in this fork, and ends it."""
    code: Any = 1
    try:
        gc.freeze()  # what it inherited must not close files that are its own
        os.setpgid(0, 0)
        for low, high in zip([2, *kept], [*kept, 2**16], strict=True):
            os.closerange(low + 1, high)
        os.environ.clear()
        os.environ.update(env)
        sys.stdout, sys.stderr = (open(number, 'w', closefd=False) for number in (1, 2))  # noqa: SIM115
        np.random.seed()  # noqa: NPY002  # as a new process seeds it
        exec(program, {'__name__': '__main__'})
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
