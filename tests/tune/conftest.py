"""One Ray of two CPUs for the tests of a file; what they leave in the user's home is seen."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from one_ray import OPTIONS
from runs import ROOT
from tune_runs import CPUS, ENVIRONMENT, has_free_cpus

TESTS = ROOT / 'tests', ROOT / 'tests' / 'tune'
"""Folders that the processes of Ray find the classes of tests in."""


@pytest.fixture(scope='module')
def ray_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray with 2 CPUs, and a home of its own, as trials outside of Tune make folders in the user's home."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), *map(str, TESTS)]))
        patch.setenv('HOME', str(tmp_path_factory.mktemp('home')))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        ray.init(**OPTIONS, num_cpus=CPUS, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def two_cpus(ray_of_file: None) -> None:
    """The Ray of the file, once the processes of the test before have given their CPUs back."""
    assert has_free_cpus(), 'a test before lost some'
