"""Fixtures and hooks of all tests; the modules that they share lie in ``helpers``, which is on the import path."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import error_texts
import fork_server
import one_ray
import pytest
import registrations
import torch
from runs import ROOT, child_processes

torch.set_num_threads(1)

CONFIG_HOME = tempfile.mkdtemp(prefix='rlframe-tests-')
"""Stands for the user's configuration folder, also in the processes that tests start."""
os.environ['XDG_CONFIG_HOME'] = CONFIG_HOME
os.environ.pop('RLFRAME_TRUST_KEY', None)

REGISTERED = pytest.StashKey[registrations.Registered]()
"""What a test module registered when it was imported."""
LONGEST_NAME = 80
"""Letters of the name of a case, at most."""
MOST_WORKERS = 8
"""Processes that share the tests, at most: each needs up to 1 GB, and some of their tests start processes of their own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that writes the texts of errors anew."""
    parser.addoption(
        '--rewrite-errors', action='store_true', help='write the texts in tests/errors, in one process'
    )


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Names a case that is a list of words by the words."""
    if not (isinstance(val, list | tuple) and val and all(isinstance(word, str) for word in val)):
        return None
    name = ' '.join(val).replace(f'{ROOT}/', '')
    return name if len(name) <= LONGEST_NAME and name.isprintable() else None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Returns how many processes share the tests: one for each core, but none beside this one for tests named by ``::``."""
    if config.getoption('rewrite_errors') or any('::' in argument for argument in config.args):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    return min(cores or 1, MOST_WORKERS)


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; what a command line adds to the import path is forgotten."""
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nothing_outlives() -> Iterator[None]:
    """Fails a test that leaves a thread or a process."""
    before, processes = set(threading.enumerate()), child_processes()
    yield
    assert not multiprocessing.active_children() and child_processes() <= processes
    assert not [thread for thread in threading.enumerate() if thread not in before]


@pytest.fixture(scope='session')
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of this user, with an export; tests take copies of it."""
    from foreign import make_small_run

    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp('small_run'))
    try:
        return make_small_run()
    finally:
        os.chdir(before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keeps the garbage collector away from the tests and modules: they stay, and to visit them again and again takes seconds."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Puts aside what a test module registers when it is imported: no test of another module is to see it."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    before = registrations.now()
    report = yield
    collector.stash[REGISTERED] = registrations.put_aside(
        before, collector.obj.__name__ if report.passed else ''
    )
    return report


@pytest.fixture(scope='module', autouse=True)
def registries_come_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Registers what the module registered when it was imported, and removes after its tests whatever they added."""
    before = registrations.now()
    registrations.put_back(request.node.stash.get(REGISTERED, {}))
    yield
    registrations.restore(before)


@pytest.fixture
def ray_of_tests() -> Any:
    """Ray with 4 CPUs, once the actors of the test before have given theirs back.

    There may be fewer CPUs in this machine: what the tests start waits most of the time.
    """
    ray = one_ray.share(num_cpus=one_ray.CPUS)
    until = time.monotonic() + 30
    while ray.available_resources().get('CPU', 0) < one_ray.CPUS and time.monotonic() < until:
        time.sleep(0.05)
    assert ray.available_resources().get('CPU', 0) >= one_ray.CPUS, 'a test before has left an actor running'
    return ray


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command line that must end with exit code 2, the text of its entry without a traceback, and change no file here."""

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in Path.cwd().rglob('*') if path.is_file()}

    def run(*words: str) -> str:
        from rlframe.entry.__main__ import main

        assert not Path('pyproject.toml').exists(), (
            'the test is not in a folder of its own: give it the fixture cwd'
        )
        before = files()
        capsys.readouterr()
        try:
            code: Any = main(list(words))
        except SystemExit as error:
            code = error.code
        out, err = capsys.readouterr()
        assert code == 2 and 'Traceback' not in err and out == '', err
        assert len([line for line in err.splitlines() if line.startswith('rlframe')]) == 1, err
        assert files() == before
        error_texts.check(err)
        return err

    return run


@pytest.fixture
def copies() -> Iterator[None]:
    """Programs that ``runs.train`` starts are copies of a process that has imported torch and rlframe already."""
    with fork_server.copying():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Lets a test use the texts of its errors, each of them."""
    error_texts.EXPECTED.begin(item)
    result = yield
    error_texts.EXPECTED.end()
    return result


def pytest_unconfigure() -> None:
    """Ends what tests share, and deletes what stands for the user's configuration folder."""
    error_texts.EXPECTED.write()
    one_ray.end()
    fork_server.end()
    shutil.rmtree(CONFIG_HOME, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ends the Ray that tests share before one that does not: its processes are children of this one."""
    if 'ray_of_tests' not in getattr(item, 'fixturenames', ()):
        one_ray.end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests that share a Ray last, together; notes all tests of the modules that were collected whole."""
    if not any('::' in argument for argument in config.args):
        error_texts.EXPECTED.collected(items)
    for item in items:
        params = getattr(getattr(item, 'callspec', None), 'params', {})
        if params.get('kind') == 'ray' and item.path.name in ('test_transports.py', 'test_places.py'):
            # a list of its own: parameter sets of a test share one, and the others need no Ray
            item.fixturenames = ['ray_of_tests', *item.fixturenames]  # type: ignore[attr-defined]
    items.sort(key=lambda item: 'ray_of_tests' in getattr(item, 'fixturenames', ()))
