"""The shared folder has one owner, is never overfull, and is left as it was."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlframe.errors import (
    ExperimentDirError,
    ExperimentLockedError,
    MessageError,
    NoRoomError,
    PayloadError,
)
from rlframe.parallel.transport import flask_fs_folder as array_file
from rlframe.parallel.transport.flask_fs_folder import DOWN, OWNER, UP, OwnedFolder, SharedFolder

MOST = 10_000


def owned(path: Path, run: str = 'run') -> OwnedFolder:
    return OwnedFolder(path, MOST, 4 * MOST, run)


def shared(path: Path) -> SharedFolder:
    return SharedFolder(path, MOST, 4 * MOST)


def test_folder_is_made_private_and_deleted_at_the_end(tmp_path: Path) -> None:
    folder = owned(tmp_path / 'data')
    assert (tmp_path / 'data').stat().st_mode & 0o777 == 0o700
    folder.write(folder.payload_file(1, 2, UP), {'a': np.zeros(3)})
    folder.close()
    folder.close()
    assert os.listdir(tmp_path) == []


def test_payload_is_deleted_when_it_is_read(tmp_path: Path) -> None:
    folder, worker = owned(tmp_path), shared(tmp_path)
    file = worker.payload_file(1, 2, UP)
    worker.write(file, {'a': np.arange(3)})
    assert folder.take(folder.payload_file(1, 2, UP))['a'].tolist() == [0, 1, 2]
    assert not file.exists()
    file.write_bytes(b'garbage')
    with pytest.raises(MessageError):
        folder.take(file)
    assert not file.exists()
    folder.close()


def test_second_coordinator_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    first = owned(tmp_path)
    with pytest.raises(ExperimentLockedError, match=rf'the shared folder is in use: .*"pid": {os.getpid()}'):
        owned(tmp_path)
    first.close()
    second = owned(tmp_path)
    second.write(second.payload_file(1, 1, DOWN), {})
    first.close()
    assert second.payload_file(1, 1, DOWN).exists()
    second.close()
    assert os.listdir(tmp_path) == [], 'the folder stays, as it was there'


def test_leftovers_of_a_killed_coordinator_are_its_own_runs_to_delete(tmp_path: Path) -> None:
    living, path = owned(tmp_path / 'living'), tmp_path / 'data'
    living.write(living.payload_file(1, 2, UP), {'a': 1})
    (living.path / '5-6-up.tmp').touch()
    shutil.copytree(living.path, path)  # as a process leaves it that is killed
    living.close()
    left = {'.lock', OWNER, '1-2-up.safetensors', '5-6-up.tmp'}
    assert set(os.listdir(path)) == left
    with pytest.raises(ExperimentDirError, match="another run, 'run', and this is 'other'"):
        owned(path, 'other')
    assert set(os.listdir(path)) - {'.lock'} == left - {'.lock'}
    folder = owned(path)
    assert set(os.listdir(path)) == {'.lock', OWNER}
    folder.close()
    assert not path.exists(), 'the folder was made for this run'


@pytest.mark.parametrize('text', ['', '[]', '{"run": 1, "run": 2}', 'x' * 9000])
def test_folder_with_a_damaged_owner_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / OWNER).write_text(text)
    with pytest.raises(ExperimentDirError, match='another run'):
        owned(tmp_path)
    assert os.listdir(tmp_path) == [OWNER]


def test_links_are_neither_followed_nor_overwritten(tmp_path: Path) -> None:
    secret = tmp_path / 'secret'
    secret.write_text(json.dumps({'run': 'run', 'is_new': True}))
    path = tmp_path / 'data'
    path.mkdir()
    (path / OWNER).symlink_to(secret)
    with pytest.raises(ExperimentDirError):
        owned(path)
    (path / OWNER).unlink()
    folder = owned(path)
    for name in ('1-2-up.tmp', '1-2-up.safetensors'):
        (path / name).symlink_to(secret)
    with pytest.raises(PayloadError, match='File exists'):
        folder.write(folder.payload_file(1, 2, UP), {})
    with pytest.raises(MessageError):
        folder.take(folder.payload_file(1, 2, UP))
    folder.delete(1)
    folder.close()
    assert secret.read_text() == json.dumps({'run': 'run', 'is_new': True}) and os.listdir(path) == []


def test_folder_that_others_may_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'data'
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(ExperimentDirError, match=f'everyone may write to the folder. chmod o-w {path}'):
        owned(path)
    path.chmod(0o755)
    os.chown(path, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, 'geteuid', lambda: 12345)
    with pytest.raises(ExperimentDirError, match='belongs to user'):
        owned(path)
    assert os.listdir(path) == []


def test_payload_above_its_limit_is_refused_by_the_sender(tmp_path: Path) -> None:
    worker = shared(tmp_path)
    with pytest.raises(PayloadError, match=r'has 1\d,\d{3} bytes, but max_payload_bytes is 10,000'):
        worker.write(worker.payload_file(1, 1, UP), np.zeros(MOST, np.uint8))
    assert os.listdir(tmp_path) == []


def test_full_folder_is_refused_until_something_is_read(tmp_path: Path) -> None:
    worker = shared(tmp_path)
    files = [worker.payload_file(1, i, UP) for i in range(5)]
    for file in files[:4]:
        worker.write(file, np.zeros(MOST - 500, np.uint8))
    with pytest.raises(NoRoomError, match='the shared folder is full: 3'):
        worker.write(files[4], np.zeros(MOST - 500, np.uint8))
    worker.take(files[0])
    worker.write(files[4], np.zeros(MOST - 500, np.uint8))


def test_payload_for_which_there_never_is_room_is_told_apart(tmp_path: Path) -> None:
    worker = SharedFolder(tmp_path, 10 * MOST, MOST)
    with pytest.raises(PayloadError, match='the shared folder is full') as caught:
        worker.write(worker.payload_file(1, 1, UP), np.zeros(MOST, np.uint8))
    assert not isinstance(caught.value, NoRoomError) and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ('number', 'may_pass'), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, False)]
)
def test_full_disk_is_told_to_the_sender_and_leaves_nothing(
    number: int, may_pass: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    worker = shared(tmp_path)
    monkeypatch.setattr(array_file.os, 'rename', full)
    with pytest.raises(PayloadError, match=os.strerror(number)) as caught:
        worker.write(worker.payload_file(1, 1, UP), {'a': np.zeros(3)})
    assert isinstance(caught.value, NoRoomError) is may_pass
    assert caught.value.where == str(tmp_path) and os.listdir(tmp_path) == []


def test_files_of_one_connection_are_deleted_and_no_others(tmp_path: Path) -> None:
    folder = owned(tmp_path / 'data')
    for connection in (1, 11):
        folder.write(folder.payload_file(connection, 1, UP), {})
    folder.delete(1)
    assert set(os.listdir(folder.path)) == {'.lock', OWNER, '11-1-up.safetensors'}
    folder.close()
