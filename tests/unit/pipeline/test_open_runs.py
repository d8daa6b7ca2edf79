"""Several runs that are open in one process, and runs that nobody closes."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from threading import Thread

import pytest
from foreign import CREATE, MAIN

import rlframe

pytestmark = pytest.mark.usefixtures('cwd')


def started(name: str) -> rlframe.Run:
    return rlframe.start((MAIN, CREATE), max_train_iter=4, folder=name)


def open_files() -> list[str]:
    here, found = str(Path.cwd()), []
    for number in os.listdir('/proc/self/fd'):
        path = Path('/proc/self/fd') / number
        if path.is_symlink() and os.readlink(path).startswith(here):
            found.append(os.readlink(path))
    return found


def test_a_run_that_is_forgotten_closes_its_files() -> None:
    started('forgotten').step()
    gc.collect()
    assert open_files() == [] and not Path('forgotten/.lock').exists()


@pytest.mark.parametrize('has_threads', [False, True])
def test_open_runs_do_not_write_into_each_others_log(has_threads: bool) -> None:
    runs = [started('one'), started('two')]
    for _ in range(2):
        for run in runs:
            if has_threads:
                thread = Thread(target=run.step)
                thread.start()
                thread.join()
            else:
                run.step()
    for run in runs:
        run.close()
        log = (run.folder / 'log.txt').read_text()
        assert [log.count(f'train_iter {i}:') for i in range(2)] == [1, 1] and log.count('DQNPolicy') == 1
