"""Writes files and folders of checkpoints atomically: to a temporary name, flushed to disk, then renamed."""

from __future__ import annotations

import hashlib
import io
import os
import pickletools
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypedDict

from rlframe.errors import CheckpointCorruptError, UnsafeCheckpointError
from rlframe.utils.files import LimitExceededError, private_opener
from rlframe.utils.strict_json import check_size

LOOK = 64 * 2**20
"""Number of bytes of a file, and of the files packed into it, that are searched."""
DEPTH = 3
"""Maximum nesting of zips that are searched."""
HARMLESS = ('torch', 'collections', 'numpy', '_codecs')
"""Modules whose names occur in every file that torch saved; others are named first."""


class Pickle(NamedTuple):
    """A pickle that was found."""

    member: str
    """Place within a packed file, empty if the file itself is the pickle."""
    names: tuple[str, ...]
    """The imports of the pickle, as ``module.name``."""

    def __str__(self) -> str:
        place = f' in {self.member}' if self.member else ''
        named = sorted(self.names, key=lambda name: name.split('.')[0] in HARMLESS)[:3]
        return f'a pickle{place}' + (f' that would call {", ".join(named)}' if named else '')


def find_pickle(file: Path | IO[bytes]) -> Pickle | None:
    """Returns the first pickle in a file: bare, saved by torch, in an npz, or in a zip; ``None`` if there is none."""
    if isinstance(file, Path):
        with open(file, 'rb') as opened:
            return find_pickle(opened)
    return _find(file, '', DEPTH)


def _find(file: IO[bytes], member: str, depth: int) -> Pickle | None:
    head = file.read(8)
    file.seek(0)
    if head.startswith(b'PK') and depth:
        return _find_in_zip(file, member, depth)
    data = file.read(LOOK)
    if head.startswith(b'\x93NUMPY') and b'|O' in data[:1024]:
        start = data.find(b'\x80', 10)
        return Pickle(member, _names(data[max(start, 0) :]) or ())
    names = _names(data)
    return None if names is None else Pickle(member, names)


def _find_in_zip(file: IO[bytes], member: str, depth: int) -> Pickle | None:
    left = LOOK  # of all members together: a small file can unpack to a very large one
    try:
        with zipfile.ZipFile(file) as packed:
            for info in packed.infolist():
                with packed.open(info) as opened:
                    inner = io.BytesIO(opened.read(left))
                left -= len(inner.getbuffer())
                found = _find(inner, f'{member}/{info.filename}'.lstrip('/'), depth - 1)
                if found is not None:
                    return found
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        return None
    return None


def _names(data: bytes) -> tuple[str, ...] | None:
    """Returns the imports of the pickles in some bytes, ``None`` if they are not a pickle."""
    stream, names, whole = io.BytesIO(data), list[str](), False
    has_header = data[:1] == b'\x80' and data[1:2] <= b'\x05'
    while stream.tell() < len(data):
        found, ended = _one_pickle(stream)
        names += found
        if not ended:
            break
        whole = True
    is_pickle = (has_header and (whole or names)) or (whole and names)
    return tuple(dict.fromkeys(names)) if is_pickle else None


def _one_pickle(stream: IO[bytes]) -> tuple[list[str], bool]:
    """Reads the instructions of one pickle: its imports, and whether the bytes reach its end."""
    names: list[str] = []
    texts, memo = ['', ''], dict[int, str]()
    try:
        for code, argument, _ in pickletools.genops(stream):
            if code.name in ('GLOBAL', 'INST'):
                names.append(str(argument).replace(' ', '.'))
            elif code.name == 'STACK_GLOBAL':
                names.append('.'.join(texts))
            elif code.name == 'MEMOIZE':
                memo[len(memo)] = texts[1]
            elif code.name.endswith('BINPUT'):
                memo[int(argument or 0)] = texts[1]
            elif code.name.endswith('BINGET'):
                texts = [texts[1], memo.get(int(argument or 0), '')]
            elif isinstance(argument, str):
                texts = [texts[1], argument]
    except (ValueError, IndexError, OverflowError, struct.error, EOFError, MemoryError):
        return names, False
    return names, True


MANIFEST = 'manifest.json'
TEMPORARY, REPLACED = '.tmp-', '.old-'
"""Name prefixes of incomplete or discarded folders, and of those being replaced by another."""
CHUNK = 2**20


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
    mode = 0
    for entry in os.scandir(staging):
        mode |= stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
    staging.chmod(mode | 0o100 | (mode & 0o444) >> 2)  # everyone who can read the files can enter
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


def read_checked(path: Path, expected: FileFacts) -> bytes:
    """Returns a file's bytes if they match a manifest.

    Raises:
        CheckpointCorruptError: If the size or the SHA-256 differs.
        UnsafeCheckpointError: If it was replaced by a pickle.
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
    """Reads a file like ``read_checked``, but rejects one too long for its kind of JSON; no limit without a kind.

    Raises:
        CheckpointCorruptError: If it is too long, or does not match the manifest.
        UnsafeCheckpointError: If it was replaced by a pickle.
    """
    try:
        if kind:
            check_size(expected['size'], kind)
    except LimitExceededError as error:
        raise refusal(path, f'the file is too large: {error}', remedy=error.remedy) from error
    return read_checked(path, expected)


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
    """Returns the error for an invalid file: that it holds a pickle, if it does, else the message."""
    with open_regular(path) as file:
        found = find_pickle(file)
    if found is None:
        return CheckpointCorruptError(message, where=str(path), **facts)
    return UnsafeCheckpointError(
        f'this file contains {found}, and loading a pickle runs code',
        where=str(path),
        remedy='rlframe loads tensors and JSON only; ask whoever made it for the weights as safetensors.',
    )
