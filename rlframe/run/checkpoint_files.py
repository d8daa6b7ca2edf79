"""Options of checkpoints; writes their files and folders atomically: to a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, TypedDict

from rlframe.errors import CheckpointCorruptError, UnsafeCheckpointError
from rlframe.utils.field import Section, option
from rlframe.utils.files import LimitExceededError, private_opener
from rlframe.utils.strict_json import check_size

MANIFEST = 'manifest.json'
TEMPORARY, REPLACED = '.tmp-', '.old-'
"""Name prefixes of incomplete or discarded folders, and of folders that are being replaced."""
CHUNK = 2**20


class CheckpointConfig(Section):
    """Section ``checkpoint`` of a run."""

    keep_last: int = option(
        2,
        range='[1, inf)',
        unit='checkpoints',
        doc='number of states of the whole training that are kept, the newest',
        may_change=True,
    )
    keep_best: int = option(
        1,
        range='[1, inf)',
        unit='checkpoints',
        doc='number of policies that are kept, those with the best scores',
        may_change=True,
    )
    replay_buffer: Literal['every', 'incremental', 'none'] = option(
        'every',
        doc='checkpoints that contain the replay buffer: every one, every one with unchanged rows written once'
        ' (incremental), or none, so that a resume is not exact',
        may_change=True,
    )


class FileFacts(TypedDict):
    """The entry of a file in a manifest."""

    size: int
    sha256: str


def write_file(path: Path, data: bytes, private: bool = False) -> FileFacts:
    """Writes a new file and flushes it to the disk; only its owner can read a private one."""
    with open(path, 'xb', opener=private_opener if private else None) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {'size': len(data), 'sha256': hashlib.sha256(data).hexdigest()}


def link_file(source: Path, target: Path) -> None:
    """Creates a hard link to a file, or a copy if the file system does not support links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with open(target, 'rb') as file:
            os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Flushes the directory entries of a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def staging_folder(path: Path) -> Iterator[Path]:
    """Creates a folder next to ``path``, with an unpredictable name; deletes its remains at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f'{TEMPORARY}{path.name}-', dir=path.parent))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish_folder(staging: Path, path: Path) -> None:
    """Renames a finished folder to its final name, replacing one of that name. If that fails, nothing has changed."""
    # everyone who can read the files can enter
    mode = 0
    for entry in os.scandir(staging):
        mode |= stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    staging.chmod(mode | 0o100 | (mode & 0o444) >> 2)
    sync_folder(staging)
    # exchange the folders
    old = None
    if path.exists():
        old = unused_name(path, REPLACED)
        os.rename(path, old)
    try:
        os.rename(staging, path)
        sync_folder(path.parent)
    except BaseException:
        if not staging.exists():
            os.rename(path, staging)
        if old is not None:
            os.rename(old, path)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def delete_folder(path: Path) -> None:
    """Deletes a folder without ever showing it half deleted."""
    gone = unused_name(path, TEMPORARY)
    with suppress(FileNotFoundError):
        os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def unused_name(path: Path, prefix: str) -> Path:
    """Returns an unused name next to ``path``."""
    return path.with_name(f'{prefix}{path.name}-{os.urandom(8).hex()}')


@contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Opens a regular file; does not follow a link, nor wait for a pipe or a device.

    Raises:
        CheckpointCorruptError: If it is missing or something else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise CheckpointCorruptError('the file is missing', where=str(path)) from None
    except OSError as error:
        raise CheckpointCorruptError(f'the file cannot be read: {error.strerror}', where=str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointCorruptError('this is not a regular file', where=str(path))
    with os.fdopen(descriptor, 'rb') as file:
        yield file


def read_checked(path: Path, expected: FileFacts, kind: str = '') -> bytes:
    """Returns a file's bytes if they match a manifest.

    Args:
        path: The file.
        expected: Its entry in the manifest.
        kind: Kind of JSON in it, which has a limit; empty for tensors.

    Raises:
        CheckpointCorruptError: If the size or the SHA-256 differs, or it is too long for its kind.
        UnsafeCheckpointError: If it was replaced by a pickle.
    """
    try:
        if kind:
            check_size(expected['size'], kind)
    except LimitExceededError as error:
        raise refusal(path, f'the file is too large: {error}', remedy=error.remedy) from error
    with open_regular(path) as file:
        _check_size(file, path, expected['size'])
        data = file.read(expected['size'])
    _check_hash(path, hashlib.sha256(data).hexdigest(), expected['sha256'])
    return data


def check_file(path: Path, expected: FileFacts) -> None:
    """Compares a file with its manifest entry, without holding it in memory; raises like ``read_checked``."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        _check_size(file, path, expected['size'])
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    _check_hash(path, digest.hexdigest(), expected['sha256'])


def _check_size(file: IO[bytes], path: Path, expected: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != expected:
        raise refusal(path, 'the file was cut or changed', got=size, expected=f'{expected} bytes')


def _check_hash(path: Path, got: str, expected: str) -> None:
    if got != expected:
        message = 'the file was changed: its SHA-256 is not that of the manifest'
        raise refusal(path, message, got=got, expected=expected)


def refusal(path: Path, message: str, **facts: Any) -> CheckpointCorruptError | UnsafeCheckpointError:
    """Returns the error for an invalid file: that it is a pickle, also one in a zip as torch writes it, else the message."""
    with open_regular(path) as file:
        data = file.read(CHUNK)
    start = data.find(b'\x80', data.find(b'.pkl')) if data.startswith(b'PK') and b'.pkl' in data else 0
    if data[start : start + 2] not in (b'\x80\x02', b'\x80\x03', b'\x80\x04', b'\x80\x05'):
        return CheckpointCorruptError(message, where=str(path), **facts)
    return UnsafeCheckpointError(
        'this file contains a pickle, and loading a pickle runs code',
        where=str(path),
        remedy='rlframe loads tensors and JSON only; ask whoever made it for the weights as safetensors.',
    )
