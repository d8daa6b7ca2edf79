"""One Ray of two CPUs for the tests of a file; what they leave in the user's home is seen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_ray import OPTIONS, forked_workers
from runs import ROOT
from tune_runs import CPUS, ENVIRONMENT, has_free_cpus, ray_results

TESTS = ROOT / 'tests', ROOT / 'tests' / 'tune'
"""Folders that the processes of Ray find the classes of tests in."""


@pytest.fixture(scope='module')
def ray_of_file() -> Iterator[None]:
    """Ray with 2 CPUs; trials outside of Tune make folders in the user's home, which are removed.

    HOME stays as it is: this process keeps the token of its first Ray, and a later one takes its own from HOME.
    """
    import ray

    before = ray_results()
    was_there = (Path.home() / 'ray_results').exists()
    with pytest.MonkeyPatch.context() as patch, forked_workers():
        patch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), *map(str, TESTS)]))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        ray.init(**OPTIONS, num_cpus=CPUS, log_to_driver=False)
        yield
        ray.shutdown()
    for folder in ray_results() - before:
        shutil.rmtree(folder, ignore_errors=True)
    if not was_there and not ray_results():
        shutil.rmtree(Path.home() / 'ray_results', ignore_errors=True)


@pytest.fixture
def two_cpus(ray_of_file: None) -> None:
    """The Ray of the file, once the processes of the test before have given their CPUs back."""
    assert has_free_cpus(), 'a test before lost some'
