"""What Ray's workers leave behind is found by the files that it writes, and ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlframe.backend.ray.guard import end_writers, start_guard, writers

pytestmark = pytest.mark.skipif(not Path('/proc/self/fd').exists(), reason='needs /proc')


class Left:
    """Processes that write into logs, as children of Ray's workers do."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.processes = folder, []  # type: Path, list[subprocess.Popen[bytes]]
        (folder / 'logs').mkdir()

    def start(self, log: str, seconds: float = 1000) -> subprocess.Popen[bytes]:
        with (self._folder / 'logs' / log).open('ab') as file:
            program = f'import time; time.sleep({seconds})'
            self.processes.append(subprocess.Popen([sys.executable, '-I', '-c', program], stderr=file))
        return self.processes[-1]


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    left = Left(tmp_path)
    yield left
    for process in left.processes:
        process.kill()
        process.wait()


def test_writers_of_some_logs_are_ended_and_no_others(left: Left, tmp_path: Path) -> None:
    mine, other = left.start('worker-a-1.err'), left.start('worker-b-12.err')
    logs = [f'{tmp_path}/logs/worker-a-1.err']
    assert writers(logs) == [mine.pid]
    end_writers(logs)
    assert mine.wait(timeout=30) == -9 and other.poll() is None and writers(logs) == []


def test_who_ends_in_time_is_not_killed(left: Left, tmp_path: Path) -> None:
    process = left.start('worker-a-1.err', seconds=0.01)
    end_writers([f'{tmp_path}/logs/worker-'], grace_s=60)
    assert process.wait(timeout=30) == 0


@pytest.mark.slow
def test_the_guard_ends_what_workers_left_after_an_orderly_end_and_spares_the_run(
    left: Left, tmp_path: Path
) -> None:
    child, driver = left.start('worker-a-1.err'), left.start('python-core-driver-1.log')
    guard: Any = start_guard(tmp_path)
    guard.communicate(timeout=60)  # as the run does when it lets go of Ray
    assert child.wait(timeout=30) == -9 and driver.poll() is None


def test_a_program_that_only_connected_to_the_ray_of_the_run_is_spared(left: Left, tmp_path: Path) -> None:
    other, started = left.start('python-core-driver-02ffff_12.log'), left.start('worker-a-1.err')
    log = f"f'{tmp_path}/logs/python-core-driver-02ffff_{{os.getpid()}}.log'"
    program = f"import os, time; log = open({log}, 'ab'); print(1, flush=True); time.sleep(1000)"
    connected = subprocess.Popen([sys.executable, '-I', '-c', program], stdout=subprocess.PIPE)
    left.processes.append(connected)
    assert connected.stdout is not None and connected.stdout.readline()
    assert sorted(writers([f'{tmp_path}/'])) == sorted([other.pid, started.pid])
    connected.stdout.close()
