"""A checkpoint appears whole or not at all, whatever happens while it is saved, and old formats stay readable."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import newest_good, save_run, state
from error_texts import raises
from runs import HELPERS, ROOT

from rlframe.errors import CheckpointError, CheckpointWriteError
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import clean_leftovers, publish_checkpoint, save_checkpoint
from rlframe.worker.replay_buffer import create_buffer

GOLDEN = ROOT / 'tests' / 'golden'


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_replaces_one_of_its_name_and_an_empty_folder_but_nothing_else(tmp_path: Path) -> None:
    (tmp_path / 'empty').mkdir()
    for path in (tmp_path / 'new', tmp_path / 'new', tmp_path / 'empty', tmp_path / 'a' / 'b'):
        save_checkpoint(path, state(1))
        save_checkpoint(path, state(2))
        assert load_checkpoint(path)[0]['progress'] == {'train_iter': 2}
    assert names(tmp_path) == ['a', 'empty', 'new']
    (tmp_path / 'photos').mkdir()
    (tmp_path / 'photos' / 'one.jpg').touch()
    (tmp_path / 'file').touch()
    (tmp_path / 'link').symlink_to('new')
    for name in ('photos', 'file', 'link'):
        with raises(CheckpointWriteError):
            save_checkpoint(tmp_path / name, state())
    assert (tmp_path / 'photos' / 'one.jpg').exists() and (tmp_path / 'link').is_symlink()


def test_modes_are_those_of_the_umask_and_while_it_is_written_nobody_else_may_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob('.tmp-*'))
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', fsync)
    for mask, folder_mode, file_mode in ((0o022, 0o755, 0o644), (0o077, 0o700, 0o600), (0o027, 0o750, 0o640)):
        old = os.umask(mask)
        try:
            path = save_checkpoint(tmp_path / f'{mask:o}', state())
        finally:
            os.umask(old)
        assert stat.S_IMODE(path.stat().st_mode) == folder_mode
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}
        text = {'state.json': 0o600, 'manifest.json': 0o600}  # which could hold secrets
        assert modes == {'tensors.safetensors': file_mode, **text}
    assert seen[:3] == [0o700] * 3


def test_everything_is_flushed_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        calls.append(os.path.basename(os.readlink(f'/proc/self/fd/{descriptor}')))
        real_sync(descriptor)

    def rename(old: Any, new: Any) -> None:
        calls.append('rename')
        real_rename(old, new)

    monkeypatch.setattr(os, 'fsync', fsync)
    monkeypatch.setattr(os, 'rename', rename)
    save_checkpoint(tmp_path / 'saved', state())
    before, after = calls[: calls.index('rename')], calls[calls.index('rename') + 1 :]
    assert before[:-1] == ['state.json', 'tensors.safetensors', 'manifest.json']
    assert before[-1].startswith('.tmp-saved-') and after == [tmp_path.name]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / 'ckpt').mkdir()
    (tmp_path / 'victim').mkdir()
    (tmp_path / 'ckpt' / '.tmp-iteration_1').symlink_to(tmp_path / 'victim')
    save_run(tmp_path / 'ckpt', [1])
    assert names(tmp_path / 'victim') == []
    clean_leftovers(tmp_path / 'ckpt')
    assert (tmp_path / 'victim').is_dir() and names(tmp_path / 'ckpt') == ['iteration_1', 'latest']


# full disks


@pytest.fixture
def small_files() -> Iterator[None]:
    """Lets no file grow beyond 100 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_grow_leaves_the_checkpoint_before(tmp_path: Path, small_files: None) -> None:
    save_run(tmp_path, [1, 2])
    before, name = names(tmp_path), 'iteration_2'  # which it would have replaced
    with pytest.raises(CheckpointWriteError) as caught:
        publish_checkpoint(tmp_path / name, state(3) | {'big': np.zeros(10**5)})
    words = str(caught.value)
    assert caught.value.where == str(tmp_path / name) and 'File too large' in words
    assert 'Earlier checkpoints are untouched' in words
    assert names(tmp_path) == before and newest_good(tmp_path) == (tmp_path / 'iteration_2', [])
    assert load_checkpoint(tmp_path / 'latest')[0]['progress'] == {'train_iter': 2}
    publish_checkpoint(tmp_path / name, state(4))
    assert load_checkpoint(tmp_path / 'latest')[0]['progress'] == {'train_iter': 4}


@pytest.mark.parametrize('place', range(9))
def test_a_failing_disk_leaves_the_checkpoint_before_wherever_it_fails(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = (errno.ENOSPC, errno.EDQUOT, errno.EIO)[place % 3]
    save_run(tmp_path, [1, 2])
    before, left, real = names(tmp_path), [place], os.fsync

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, 'fsync', fsync)
    with raises(CheckpointWriteError):
        save_run(tmp_path, [3 if number == errno.EIO else 2])
    is_saved = place == 8  # after six files, their folder and its parent only the link is left to be flushed
    assert left == [-1]
    assert is_saved or names(tmp_path) == before
    assert not [name for name in names(tmp_path) if name.startswith('.')]
    newest = 3 if is_saved and number == errno.EIO else 2
    assert newest_good(tmp_path) == (tmp_path / f'iteration_{newest}', [])


def test_what_cannot_be_saved_says_how_to_go_on_without_the_buffer(tmp_path: Path) -> None:
    own = {'items': {'0': {1, 2}, '1': 'episode'}}
    with raises(CheckpointError):
        publish_checkpoint(tmp_path / 'iteration_1', state(), buffer=own)
    path = publish_checkpoint(
        tmp_path / 'iteration_1', state(), buffer=own, options={'replay_buffer': 'none'}
    )
    loaded, manifest = load_checkpoint(path)
    assert manifest['replay_buffer'] == 'none' and 'replay_buffer' not in loaded


# killed processes

CHILD = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import checkpoint_helpers
from checkpoint_helpers import newest_good, save_run
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import clean_leftovers
checkpoint_helpers.filled_buffer()
folder = Path(sys.argv[1])
save_run(folder, [0], keep_last=2)
load_checkpoint(folder / 'latest')  # imports what is imported late

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

def check(kept):
    path, damaged = newest_good(folder)
    assert not damaged, damaged
    clean_leftovers(folder)
    good, damaged = newest_good(folder)
    assert not damaged, damaged
    for name in (good, folder / 'latest'):
        state, _ = load_checkpoint(name)
        number = state['progress']['train_iter']
        assert state['policy']['model']['layer.weight'][0, 0] == number
        assert len(state['replay_buffer']['storage']['columns']['obs']) == 20
    names = sorted(path.name for path in folder.iterdir())
    assert 'latest' in names and (kept is None or len(names) <= kept + 1), names
    assert all(name.startswith(('iteration_', 'latest')) for name in names), names
    return number

def every_place():
    calls = ('fsync', 'rename', 'replace', 'unlink', 'rmdir', 'link', 'symlink', 'chmod')
    place = 0
    while True:
        def work():
            left = [place]
            for name in calls:
                def call(*args, _real=getattr(os, name), **kwargs):
                    left[0] -= 1
                    if left[0] < 0:
                        os._exit(9)
                    return _real(*args, **kwargs)
                setattr(os, name, call)
            save_run(folder, [place, place], keep_last=2)
        _, status = os.waitpid(child(work), 0)
        check(2 if status == 0 else None)
        if status == 0:
            break
        place += 1
    print(place)

every_place()
"""


@pytest.mark.slow
def test_a_process_killed_while_it_saves_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    code = CHILD.format(tests=str(HELPERS))
    command = [sys.executable, '-W', 'ignore', '-c', code, str(tmp_path / 'ckpt')]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 30  # so many places were tried


# formats


def test_a_checkpoint_on_disk_is_read() -> None:
    path = GOLDEN / 'format_2' / 'cartpole_dqn'
    loaded, manifest = load_checkpoint(path)
    assert (manifest['format_version'], manifest['replay_buffer'], manifest['policy']) == (2, 'saved', 'dqn')
    assert (loaded['progress']['envstep'], loaded['progress']['train_iter']) == (72, 24)
    assert loaded['policy']['model']['encoder.layers.0.weight'].shape == (8, 4)
    buffer = create_buffer({'type': 'advanced', 'replay_buffer_size': 64})
    buffer.load_state_dict(loaded['replay_buffer'])
    assert buffer.count() == 64 and buffer.push_count == 72
    without, _ = load_checkpoint(path, buffer=False)
    assert without.keys() == loaded.keys() - {'replay_buffer'}
