"""Where nothing moves, the stacks of all threads are printed, even while the interpreter's lock is held; else nothing is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from runs import ROOT

pytestmark = pytest.mark.slow

LOCK_HELD = 'def stuck():\n    ctypes.PyDLL(None).usleep({})\n'


def run(program: str) -> str:
    head = 'import ctypes, time\nfrom rlframe.run.child_process import StallDetector\nend = time.monotonic() + 1.5\n'
    done = subprocess.run(
        [sys.executable, '-c', head + program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    return done.stderr


def test_stall_shows_every_stack_again_and_again_even_while_the_lock_is_held() -> None:
    err = run(LOCK_HELD.format(1_500_000) + 'stall = StallDetector(0.3)\nstuck()\nstall.close()')
    assert err.count('most recent call first') >= 2 and 'in stuck' in err and 'Thread' in err


def test_beats_and_the_end_keep_it_quiet_and_none_watches_nothing() -> None:
    program = """
none = StallDetector(None)
stall = StallDetector(0.6)
while time.monotonic() < end:
    stall.beat()
    time.sleep(0.02)
stall.close()
stall.beat()
none.beat()
none.close()
none.close()
time.sleep(0.8)
"""
    assert run(program) == ''


def test_supervised_run_is_told_where_it_stands_and_a_beat_begins_anew() -> None:
    program = """
import signal
from rlframe.errors import StallError
before = signal.getsignal(signal.SIGALRM)
stall = StallDetector(0.3, raises=True)
for _ in range(2):
    try:
        stuck()
        raise AssertionError('nothing was raised')
    except StallError as error:
        assert str(error).startswith('stall_timeout: no progress for 0.3 seconds'), error
    stall.beat()
stall.close()
assert signal.getsignal(signal.SIGALRM) == before
"""
    assert run('def stuck():\n    while time.monotonic() < end + 60: pass\n' + program) == ''


def test_supervised_process_that_nothing_can_be_raised_in_ends() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(LOCK_HELD.format(30_000_000) + 'stall = StallDetector(0.3, raises=True)\nstuck()')
    assert caught.value.returncode == 1 and 'in stuck' in caught.value.stderr
