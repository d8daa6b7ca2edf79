"""Files and folders of checkpoints: written beside their place, flushed to the disk, and put there by a rename."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypedDict

from rlframe.checkpoint.unsafe import find_pickle
from rlframe.errors import CheckpointCorruptError, UnsafeCheckpointError
from rlframe.safety.private_file import private_opener
from rlframe.safety.strict_json import LimitExceededError, check_size

MANIFEST = 'manifest.json'
TEMPORARY, REPLACED = '.tmp-', '.old-'
"""How the names of folders begin that are not whole yet or no longer wanted, and of those that make room for another."""
CHUNK = 2**20


class FileFacts(TypedDict):
    """What a manifest says of a file."""

    size: int
    sha256: str


def write_file(path: Path, data: bytes, private: bool = False) -> FileFacts:
    """Writes a new file and flushes it to the disk; only its owner can read a private one."""
    with open(path, 'xb', opener=private_opener if private else None) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {'size': len(data), 'sha256': hashlib.sha256(data).hexdigest()}


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file by a private one, atomically."""
    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    os.close(handle)
    try:
        os.unlink(temporary)
        write_file(Path(temporary), data, private=True)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def link_file(source: Path, target: Path) -> None:
    """Makes a second name for a file, or copies it where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with open(target, 'rb') as file:
            os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Flushes the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def staging_folder(path: Path) -> Iterator[Path]:
    """Makes a folder beside ``path``, with a name that nobody can foresee; what is left of it is deleted at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f'{TEMPORARY}{path.name}-', dir=path.parent))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish_folder(staging: Path, path: Path) -> None:
    """Gives a finished folder its name; a folder of that name makes room. If that fails, all is as it was before."""
    mode = 0
    for entry in os.scandir(staging):
        mode |= stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    staging.chmod(mode | 0o100 | (mode & 0o444) >> 2)  # who may read the files may enter, as the umask says
    sync_folder(staging)
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
    """Deletes a folder, which is not to be seen half deleted."""
    gone = unused_name(path, TEMPORARY)
    with suppress(FileNotFoundError):
        os.rename(path, gone)
    shutil.rmtree(gone, ignore_errors=True)


def unused_name(path: Path, prefix: str) -> Path:
    """Returns a name beside ``path`` that nothing has."""
    return path.with_name(f'{prefix}{path.name}-{os.urandom(8).hex()}')


@contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Opens a regular file that is no link; a pipe or a device is not waited for.

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
        raise CheckpointCorruptError('this is no regular file', where=str(path))
    with os.fdopen(descriptor, 'rb') as file:
        yield file


def read_checked(path: Path, expected: FileFacts) -> bytes:
    """Returns a file's bytes if they are what a manifest says.

    Raises:
        CheckpointCorruptError: If the size or the SHA-256 is another.
        UnsafeCheckpointError: If a pickle took its place.
    """
    with open_regular(path) as file:
        _check_size(file, path, expected['size'])
        try:
            data = file.read(expected['size'])
        except MemoryError as error:
            raise refusal(path, f'its {expected["size"]:,} bytes do not fit into memory') from error
    _check_hash(path, hashlib.sha256(data).hexdigest(), expected['sha256'])
    return data


def read_limited(path: Path, expected: FileFacts, kind: str) -> bytes:
    """Reads a file like ``read_checked``, but refuses one that is too long for its kind of JSON; no limit without a kind.

    Raises:
        CheckpointCorruptError: If it is, or is not what the manifest says.
        UnsafeCheckpointError: If a pickle took its place.
    """
    try:
        if kind:
            check_size(expected['size'], kind)
    except LimitExceededError as error:
        raise refusal(path, f'the file is too large: {error}', remedy=error.remedy) from error
    return read_checked(path, expected)


def check_file(path: Path, expected: FileFacts) -> None:
    """Compares a file with what a manifest says, without holding it in memory; raises like ``read_checked``."""
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
    """Returns the error for a file that is not what it should be: that it holds a pickle, if so, else the message."""
    with open_regular(path) as file:
        found = find_pickle(file)
    if found is None:
        return CheckpointCorruptError(message, where=str(path), **facts)
    return UnsafeCheckpointError(
        f'this file holds {found}, and loading a pickle runs code',
        where=str(path),
        remedy='rlframe loads tensors and JSON only; ask whoever made it for the weights as safetensors.',
    )
