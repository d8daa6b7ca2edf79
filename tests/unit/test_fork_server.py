"""Programs that are copies of the fork server run, and end, as programs of their own do."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import fork_server
import pytest
from fault_envs import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('copies')]
PROGRAM = """
import atexit, os, sys, torch
atexit.register(print, 'at the end')
print(sys.argv, os.getcwd(), os.environ['WORD'], sys.stdin.read(), __name__)
print('error', file=sys.stderr)
sys.exit(int(os.environ['CODE']))
"""
WAITING = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
print('waits', flush=True)
time.sleep(1000)
"""


def start(program: str, *words: str, **options: Any) -> subprocess.Popen[str]:
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return fork_server.popen(
        ['-c', program, *words], text=True, **{'env': dict(os.environ), **pipes, **options}
    )


def test_copy_has_streams_folder_environment_and_exit_code(tmp_path: Path) -> None:
    environment = {**os.environ, 'WORD': 'seven', 'CODE': '3'}
    copy = start(PROGRAM, 'a', 'b c', cwd=tmp_path, env=environment)
    assert isinstance(copy, fork_server.Copy)
    out, err = copy.communicate('given')
    assert (out, err) == (f"['-c', 'a', 'b c'] {tmp_path} seven given __main__\nat the end\n", 'error\n')
    assert copy.returncode == 3


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_copy(number: int) -> None:
    copy = start(WAITING)
    assert copy.stdout is not None and copy.stdout.readline() == 'waits\n'
    copy.send_signal(number)
    copy.communicate()
    assert copy.returncode == -number


def test_copy_ends_with_the_process_that_stands_for_it() -> None:
    copy = start(WAITING)
    assert isinstance(copy, fork_server.Copy)
    assert copy.stdout is not None and copy.stdout.readline() == 'waits\n'
    os.kill(copy.pid, signal.SIGKILL)
    copy.communicate()
    assert wait_until(lambda: not Path(f'/proc/{copy.copy_pid}').exists(), 30)


def test_two_copies_draw_other_random_numbers() -> None:
    program = 'import numpy as np, torch, rlframe.pipeline; print(np.random.rand(), torch.rand(1).item())'
    assert start(program).communicate()[0] != start(program).communicate()[0]
