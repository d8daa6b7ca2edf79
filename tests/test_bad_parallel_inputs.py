"""Bad input to the roles of parallel mode on the command line: refused at once, with one line that says what to do."""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import free_port

from rlframe import config
from rlframe.entry.__main__ import main
from rlframe.entry.parallel import _commands
from rlframe.parallel.pipeline import ParallelPipeline

SECONDS = 20.0
"""How long a refusal may take; all time limits of workers are longer."""
TOKEN = 'a-token-of-the-tests-0123'
MAIN: dict[str, Any] = {
    'exp_name': 'run',
    'env': {'env_id': 'CartPole-v1', 'collector_env_num': 1, 'evaluator_env_num': 1},
    'policy': {'cuda': False},
}
COMM = {'type': 'flask_fs'}
CREATE: dict[str, Any] = {
    'policy': {'type': 'dqn'},
    'commander': {'type': 'solo'},
    'comm_collector': COMM,
    'comm_learner': COMM,
}


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_outlives: None) -> Iterator[Path]:
    """A working directory with a config; no thread, process, run folder or temporary file is left."""
    folder, temporary = tmp_path / 'cwd', tmp_path / 'tmp'
    folder.mkdir(), temporary.mkdir()
    (folder / 'c.py').write_text(f'main_config = {MAIN!r}\ncreate_config = {CREATE!r}\n')
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, 'tempdir', str(temporary))
    monkeypatch.delenv('RLFRAME_TOKEN', raising=False)
    yield folder
    assert list(temporary.iterdir()) == []
    assert {path.name for path in folder.iterdir()} <= {'c.py', 'run_seed0', 'other'}


@pytest.fixture
def run(cwd: Path) -> Iterator[ParallelPipeline]:
    """A coordinator that answers, with a token."""
    with ParallelPipeline(compiled(given(TOKEN)), launches=False) as pipeline:
        yield pipeline


def given(token: str) -> str:
    return f'parallel.coordinator.transport={ {"token": token}!r}'


def compiled(*overrides: str) -> Any:
    return config.compile_config(MAIN, CREATE, seed=0, overrides=overrides, parallel=True)


def refused(capsys: pytest.CaptureFixture[str], words: list[str], *says: str, code: int = 2) -> None:
    """Makes sure that a command line is refused soon, by one line with these texts."""
    start = time.monotonic()
    try:
        got: Any = main(words)
    except SystemExit as end:
        got = end.code
    assert time.monotonic() - start < SECONDS
    err = capsys.readouterr().err
    assert got == code and 'Traceback' not in err, err
    (line,) = [line for line in err.splitlines() if line.startswith('rlframe') and 'rror: ' in line]
    for text in says:
        assert text in line, line


def worker(run: ParallelPipeline, *words: str, role: str = 'collector') -> list[str]:
    """Returns the command line of a worker that may join."""
    address = run.coordinator.server.address
    return ['-m', role, '-c', 'c.py', '--join', address, *words]


def with_token(section: str = 'comm_collector') -> str:
    return f'{section}.transport={ {"token": TOKEN}!r}'


@pytest.mark.parametrize('role', ['collector', 'learner'])
def test_coordinator_that_is_not_there(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    free = free_port()
    words = ['-m', role, '-c', 'c.py', '--join', f'127.0.0.1:{free}']
    says = (f'http://127.0.0.1:{free}', 'does not answer Join', 'Is it running')
    refused(capsys, [*words, f'comm_{role}.timeout=0.1'], *says, code=1)


@pytest.mark.parametrize(
    'address',
    ['nowhere', 'host:port', 'ftp://a:1', 'a:70000', 'https://host:1', 'http://[::1'],
)
def test_malformed_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ['-m', 'collector', '-c', 'c.py', '--join', address]
    refused(capsys, words, 'ConfigError', '--join', 'bad address', repr(address), "'http://host:port'")


SECRET = '0123456789abcdef'


@pytest.mark.parametrize(
    'address',
    [
        *(f'http://{SECRET}@a:1', f'http://u:{SECRET}@a:1', f'http://a:1/{SECRET}', f'{SECRET}@a:1'),
        *(f'http://a:1/?a={SECRET}', f'http://us/er:{SECRET}@a:1'),
    ],
)
def test_token_in_the_address_is_printed_nowhere(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = ['-m', 'collector', '-c', 'c.py', '--join', address]
    assert main(words) == 2
    text = ''.join(capfd.readouterr())
    assert 'bad address' in text and SECRET not in text


def test_printed_commands_of_workers_have_no_token(run: ParallelPipeline) -> None:
    overrides = ['seed=3', f'parallel.coordinator.transport.token={SECRET}']
    no_env = dict(env=None, policy=None, env_step=None)
    lines = _commands(run, argparse.Namespace(config=Path('c.py'), overrides=overrides, **no_env))
    assert len(lines) == 2 and all('-c c.py' in line and 'seed=3' in line for line in lines)
    assert not any(SECRET in line for line in lines)
    of_env = argparse.Namespace(config=None, overrides=[], env='CartPole-v1', policy='dqn', env_step=900)
    assert all(
        '--env CartPole-v1 --policy dqn --env-step 900 --join' in line for line in _commands(run, of_env)
    )


@pytest.mark.parametrize('role', ['collector', 'learner'])
@pytest.mark.parametrize('token', ['', 'another-token-of-0123'])
def test_wrong_token(
    role: str, token: str, run: ParallelPipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [f'comm_{role}.transport={ {"token": token}!r}'] if token else []
    says = ('RequestRefusedError', 'token is missing or wrong', 'RLFRAME_TOKEN')
    refused(capsys, worker(run, *own, role=role), *says)
    assert not run.coordinator.workers.by_id


def test_worker_of_another_version(
    run: ParallelPipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('rlframe.parallel.comm_worker.__version__', '9.9.9')
    says = ('RequestRefusedError', 'another version of rlframe: 9.9.9 there', 'the same version of rlframe')
    refused(capsys, worker(run, with_token()), *says)


@pytest.mark.parametrize('word', ['policy.learn.batch_size=32', 'env.env_id=Acrobot-v1', 'seed=3'])
def test_worker_with_another_config(
    word: str, run: ParallelPipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    says = ('RequestRefusedError', 'another config', 'the same config')
    refused(capsys, worker(run, with_token(), word), *says)
    assert not run.coordinator.workers.by_id


def test_coordinator_without_a_token(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    says = (
        'ConfigError',
        'parallel.coordinator.transport',
        'workers that join need a token',
        'RLFRAME_TOKEN',
    )
    refused(capsys, ['-m', 'coordinator', '-c', 'c.py'], *says)
    assert [path.name for path in cwd.iterdir()] == ['c.py']


@pytest.mark.parametrize(
    ('words', 'says'),
    [
        (['--join', '127.0.0.1:9'], '--join is for -m learner and -m collector'),
        (['-m', 'serial', '--join', '127.0.0.1:9'], '--join is for -m learner and -m collector'),
        (['-m', 'coordinator', '--join', '127.0.0.1:9'], '--join is for -m learner and -m collector'),
        (['-m', 'parallel', '--name', 'me'], '--name is for -m learner and -m collector'),
        (['-m', 'collector', '--resume', 'run'], '-m collector has nothing to resume'),
        (['-m', 'colector'], "invalid choice: 'colector'"),
    ],
)
def test_flags_that_do_not_go_together(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, [*words, '-c', 'c.py'], says)


@pytest.mark.parametrize('mode', ['parallel', 'coordinator'])
def test_port_in_use(mode: str, run: ParallelPipeline, cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = run.coordinator.server.address.rpartition(':')[2]
    words = ['-m', mode, '-c', 'c.py', f'parallel.coordinator.port={port}', given(TOKEN)]
    refused(capsys, words, 'cannot listen on 127.0.0.1', 'already in use', 'another port')
    assert {path.name for path in cwd.iterdir()} == {'c.py', 'run_seed0'}


def test_port_in_use_leaves_a_run_that_is_resumed_or_begun_again_as_it_was(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ParallelPipeline(compiled(given(TOKEN)), launches=False) as first:
        folder = first.folder
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen(1)
        port = f'parallel.coordinator.port={taken.getsockname()[1]}'
        before = sorted(path.name for path in folder.iterdir())
        words = ['-m', 'coordinator', '-c', 'c.py', '--resume', 'auto', port, given(TOKEN)]
        refused_after_a_line(capsys, words, 'cannot listen on 127.0.0.1')
    assert sorted(path.name for path in folder.iterdir()) == before


def refused_after_a_line(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    """Like ``refused``, if the command line says something before."""
    assert main(words) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ('word', 'says'),
    [
        ('parallel.coordinator.port=70000', 'parallel.coordinator.port'),
        (given('short'), 'at least 16 visible ASCII characters'),
    ],
)
def test_coordinator_that_cannot_start(
    word: str, says: str, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(
        capsys, ['-m', 'coordinator', '-c', 'c.py', 'parallel.coordinator.port=0', given(TOKEN), word], says
    )
    assert [path.name for path in cwd.iterdir()] == ['c.py']
