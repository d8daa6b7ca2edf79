"""The shared folder has one owner, is never overfull, and is left as it was."""

from __future__ import annotations

import errno
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
from rlframe.parallel.transport.flask_fs_folder import DOWN, SECRET, UP, OwnedFolder, SharedFolder

MOST = 10_000


def owned(path: Path) -> OwnedFolder:
    return OwnedFolder(path, MOST)


def shared(path: Path) -> SharedFolder:
    return SharedFolder(path, MOST)


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


def test_leftovers_of_a_killed_coordinator_are_deleted_and_other_files_are_not_touched(
    tmp_path: Path,
) -> None:
    living, path = owned(tmp_path / 'living'), tmp_path / 'data'
    living.write(living.payload_file(1, 2, UP), {'a': 1})
    (living.path / '5-6-up.tmp').touch()
    shutil.copytree(living.path, path)  # as a process leaves it that is killed
    living.close()
    assert set(os.listdir(path)) == {'.lock', SECRET, '1-2-up.safetensors', '5-6-up.tmp'}
    (path / 'thesis.tex').write_text('x')
    before = shared(path).secret
    folder = owned(path)
    assert set(os.listdir(path)) == {'.lock', SECRET, 'thesis.tex'}
    assert len(folder.secret) == 32 and folder.secret != before
    assert (path / SECRET).stat().st_mode & 0o777 == 0o600
    folder.close()
    assert os.listdir(path) == ['thesis.tex']


def test_links_are_neither_followed_nor_overwritten(tmp_path: Path) -> None:
    secret = tmp_path / 'secret'
    secret.write_text('x')
    path = tmp_path / 'data'
    path.mkdir()
    (path / SECRET).symlink_to(secret)
    assert shared(path).secret == ''
    folder = owned(path)
    for name in ('1-2-up.tmp', '1-2-up.safetensors'):
        (path / name).symlink_to(secret)
    with pytest.raises(PayloadError, match='File exists'):
        folder.write(folder.payload_file(1, 2, UP), {})
    with pytest.raises(MessageError):
        folder.take(folder.payload_file(1, 2, UP))
    folder.delete(1)
    folder.close()
    assert secret.read_text() == 'x' and not path.exists()


def test_folder_that_others_may_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'data'
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(ExperimentDirError, match=f'others could replace files.*drwxrwxrwx.*chmod o-w {path}'):
        owned(path)
    path.chmod(0o755)
    os.chown(path, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, 'geteuid', lambda: 12345)
    with pytest.raises(ExperimentDirError, match='belongs to user 12345' if os.geteuid() == 0 else 'others'):
        owned(path)
    assert os.listdir(path) == []


def test_payload_above_its_limit_is_refused_by_the_sender(tmp_path: Path) -> None:
    worker = shared(tmp_path)
    with pytest.raises(PayloadError, match=r'has 1\d,\d{3} bytes, but max_payload_bytes is 10,000'):
        worker.write(worker.payload_file(1, 1, UP), np.zeros(MOST, np.uint8))
    assert os.listdir(tmp_path) == []


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
    assert set(os.listdir(folder.path)) == {'.lock', SECRET, '11-1-up.safetensors'}
    folder.close()
