"""One Ray of two CPUs for the tests of a file; what they leave in the user's home is seen."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from one_ray import OPTIONS, forked_workers
from runs import HELPERS, ROOT
from tune_runs import CPUS, ENVIRONMENT, RESULTS, has_free_cpus

TESTS = HELPERS, ROOT / 'tests' / 'tune'
"""Folders that the processes of Ray find the classes of tests in."""


@pytest.fixture(scope='module')
def ray_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray with 2 CPUs; trials outside of Tune write to a temporary folder instead of the user's home (``Watched``).

    HOME stays as it is: this process keeps the token of its first Ray, and a later one takes its own from HOME.
    """
    import ray

    with pytest.MonkeyPatch.context() as patch, forked_workers():
        patch.setenv('PYTHONPATH', os.pathsep.join([str(ROOT), *map(str, TESTS)]))
        patch.setenv(RESULTS, str(tmp_path_factory.mktemp('ray_results')))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        ray.init(**OPTIONS, num_cpus=CPUS, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def two_cpus(ray_of_file: None) -> None:
    """The Ray of the file, once the processes of the test before have given their CPUs back."""
    assert has_free_cpus(), 'a test before lost some'
