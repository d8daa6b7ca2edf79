"""Workers of ``-m parallel`` as forks of the process that starts them, which need not import torch and rlframe again."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from rlframe.run import child_process


class ForkedWorker(subprocess.Popen[bytes]):
    """Runs the program of a worker in a fork, whose name (``/proc/PID/comm``) is that of the worker."""

    def _execute_child(self, words: Any, *given: Any) -> None:
        kept, (to_child, _, _, from_child) = given[3], given[9:13]
        self.pid = os.fork()
        if self.pid == 0:
            for number, stream in enumerate((to_child, from_child, from_child)):
                os.dup2(stream, number)
            _run(words[-1], sorted(kept))
        self._child_created = True
        self._close_pipe_fds(*given[9:15])  # type: ignore[attr-defined]


def _run(program: str, kept: list[int]) -> NoReturn:
    code: Any = 1
    try:
        gc.freeze()  # what it inherited must not close files that are its own
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        logging.getLogger('rlframe').handlers.clear()
        for low, high in zip([2, *kept], [*kept, 2**16], strict=True):
            os.closerange(low + 1, high)
        for number, name in enumerate(('stdin', 'stdout', 'stderr')):
            setattr(sys, name, open(number, 'w' if number else 'r', closefd=False))  # noqa: SIM115
        found = re.search(r"main\(\*\('\w+', '([^']+)'", program)
        assert found is not None, program
        Path('/proc/self/comm').write_text(found[1])
        exec(program, {'__name__': '__main__'})
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def fork_workers() -> None:
    """Lets this process fork the workers that it starts."""
    of_tests = SimpleNamespace(**{**vars(subprocess), 'Popen': ForkedWorker})
    child_process.subprocess = of_tests  # type: ignore[attr-defined]
