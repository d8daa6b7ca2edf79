"""Where nothing moves, the stacks of all threads are printed, even while the interpreter's lock is held; else nothing is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HANG = {
    'python': 'def stuck():\n    while time.monotonic() < end: pass\n',
    'lock held': 'def stuck():\n    ctypes.PyDLL(None).usleep(1_500_000)\n',
}


def run(program: str) -> str:
    head = (
        'import ctypes, time\nfrom rlframe.utils.stall import StallDetector\nend = time.monotonic() + 1.5\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', head + program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    return done.stderr


@pytest.mark.parametrize('how', HANG)
def test_stall_shows_every_stack_again_and_again(how: str) -> None:
    err = run(f'{HANG[how]}stall = StallDetector(0.3)\nstuck()\nstall.close()\ntime.sleep(0.5)')
    assert err.count('most recent call first') >= 2 and 'in stuck' in err and 'Thread' in err


def test_beats_keep_it_quiet_and_none_watches_nothing() -> None:
    assert (
        run(
            'stall = StallDetector(0.6)\nwhile time.monotonic() < end:\n    stall.beat()\n    time.sleep(0.02)'
        )
        == ''
    )
    assert (
        run('stall = StallDetector(None)\ntime.sleep(0.3)\nstall.beat()\nstall.close()\nstall.close()') == ''
    )


def test_closed_detector_is_quiet() -> None:
    assert run('stall = StallDetector(0.2)\nstall.close()\nstall.beat()\ntime.sleep(0.6)') == ''
