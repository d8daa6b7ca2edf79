"""One Ray of two CPUs for the tests of a file, in a home of its own: what is left there was written by a search."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs import ROOT
from tune_runs import ENVIRONMENT

CPUS = 2
TESTS = ROOT / 'tests', ROOT / 'tests' / 'tune'
"""Folders that the processes of Ray find the classes of tests in."""


@pytest.fixture(scope='module')
def ray_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Ray with 2 CPUs; the user's home folder is an empty one, and is what is returned."""
    import ray

    home = tmp_path_factory.mktemp('home')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('HOME', str(home))
        patch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), *map(str, TESTS)]))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        ray.init(
            address='local',
            num_cpus=CPUS,
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,
            object_store_memory=200 * 2**20,
        )
        yield home
        ray.shutdown()


@pytest.fixture
def two_cpus(ray_of_file: Path) -> Path:
    """The Ray of the file, once the processes of the test before have given their CPUs back; returns the home folder."""
    import ray

    until = time.monotonic() + 30
    while ray.available_resources().get('CPU', 0) < CPUS and time.monotonic() < until:
        time.sleep(0.05)
    return ray_of_file
