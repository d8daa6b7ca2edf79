"""The shared folder: its names, its owner, and the files that both ends write."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.errors import (
    CheckpointError,
    ExperimentDirError,
    ExperimentLockedError,
    MessageError,
    NoRoomError,
    PayloadError,
)
from rlframe.run.checkpoint_files import open_regular
from rlframe.run.checkpoint_tree import BAD_TREE, Array, Encoder, decode, describe, to_json
from rlframe.run.run_folder import check_writable, lock
from rlframe.utils import strict_json
from rlframe.utils.files import PRIVATE, limit

FORMAT = 'rlframe payload 1'
BATCH = '__batch__'
"""Key of the dict that encodes a ``Batch``."""
DTYPES = {
    'BOOL': 'bool', 'I8': 'int8', 'I16': 'int16', 'I32': 'int32', 'I64': 'int64', 'U8': 'uint8', 'U16': 'uint16',
    'U32': 'uint32', 'U64': 'uint64', 'F16': 'float16', 'F32': 'float32', 'F64': 'float64',
}  # fmt: skip
"""Names of types in safetensors files, and numpy's."""
NAMES = {name: code for code, name in DTYPES.items()}
MOST_AXES = 32


class Packed(NamedTuple):
    """A payload as the content of a file."""

    chunks: list[Any]
    nbytes: int


def pack(payload: Any) -> Packed:
    """Returns the content of the file of a payload; the arrays in it are not copied.

    Raises:
        PayloadError: If a value in it cannot be sent; its place is named.
    """
    encoder = Encoder('payload')
    try:
        tree = to_json(encoder.tree(_without_batches(payload, 'payload', 0)))
    except CheckpointError as error:
        message = error.message.replace('be part of a checkpoint', 'be sent')
        raise PayloadError(message, where=error.where, remedy=error.remedy) from error
    arrays = sorted(encoder.arrays.items(), key=lambda item: -item[1].itemsize)  # so that each is aligned
    header: dict[str, Any] = {'__metadata__': {'format': FORMAT, 'tree': tree.decode('ascii')}}
    stop = 0
    for name, array in arrays:
        start, stop = stop, stop + array.nbytes
        header[name] = {
            'dtype': NAMES[array.dtype.name],
            'shape': list(array.shape),
            'data_offsets': [start, stop],
        }
    text = to_json(header)
    text += b' ' * (-len(text) % 8)
    chunks: list[Any] = [len(text).to_bytes(8, 'little'), text]
    chunks += [array.reshape(-1).view(np.uint8).data for _, array in arrays if array.nbytes]
    return Packed(chunks, 8 + len(text) + stop)


def write_file(path: Path, packed: Packed) -> None:
    """Writes a file that only its owner can read; it appears complete or not at all.

    Raises:
        OSError: If it cannot be written; nothing is left behind.
    """
    draft = path.with_suffix('.tmp')
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE)
    try:
        with os.fdopen(descriptor, 'wb') as file:
            for chunk in packed.chunks:
                file.write(chunk)
        os.rename(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_file(path: Path, most: int) -> Any:
    """Returns the payload of a file.

    Args:
        path: The file, which must be a regular one.
        most: Bytes that it may have.

    Raises:
        MessageError: If it is missing, too large, or not what ``pack`` returned.
    """
    return unpack(lambda: _bytes(path, most), path.name)


def unpack(read: Callable[[], Array], where: str) -> Any:
    """Returns the payload in the content of a file; its arrays are views of that content.

    Args:
        read: Returns the content. uint8 [bytes].
        where: Name of the payload, for errors.

    Raises:
        MessageError: If it cannot be read, or is not what ``pack`` returned.
    """
    try:
        return _unpacked(read())
    except CheckpointError as error:
        raise MessageError(f'the payload cannot be read: {error.message}', where=where) from error
    except BAD_TREE as error:
        raise MessageError(
            f'the payload is not what rlframe wrote: {describe(error)}', where=where
        ) from error


def _bytes(path: Path, most: int) -> Array:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f'{size:,} bytes, but max_payload_bytes is {most:,}')
        data = np.empty(size, np.uint8)
        if file.readinto(data) != size:  # type: ignore[attr-defined]  # a buffered reader
            raise ValueError('the file was cut while it was read')
    return data


def _unpacked(data: Array) -> Any:
    length = int.from_bytes(data[:8].tobytes(), 'little')
    if not 0 < length <= len(data) - 8:
        raise ValueError(f'a header of {length} bytes in a file of {len(data)}')
    header = strict_json.loads(data[8 : 8 + length].tobytes(), 'POLICY')
    facts = header.pop('__metadata__')
    if facts['format'] != FORMAT:
        raise ValueError(f'the format {facts["format"]!r}, expected {FORMAT!r}')
    arrays = _arrays(header, data[8 + length :])
    tree = strict_json.loads(facts['tree'].encode('ascii'), 'POLICY')
    return _with_batches(decode(tree, arrays))


def _arrays(header: Mapping[str, Any], data: Array) -> dict[str, Array]:
    """Returns the arrays of a file, as views of its data."""
    found, at = {}, 0
    for name, facts in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
        dtype, shape, (start, stop) = np.dtype(DTYPES[facts['dtype']]), facts['shape'], facts['data_offsets']
        numbers = [*shape, start, stop]
        if not all(type(number) is int and number >= 0 for number in numbers) or len(shape) > MOST_AXES:
            raise ValueError(f'{name}: bad shape or offsets')
        if start != at or stop > len(data) or stop - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f'{name}: {stop - start} bytes from {start} for {facts["dtype"]} {shape}')
        flat = data[start:stop]
        if dtype == np.bool_ and flat.size and flat.max() > 1:
            raise ValueError(f'{name}: a bool that is neither 0 nor 1')
        found[name], at = np.require(flat.view(dtype).reshape(shape), requirements='A'), stop
    if at != len(data):
        raise ValueError(f'{len(data) - at} bytes after the last array')
    return found


def _without_batches(value: Any, key: str, depth: int) -> Any:
    if depth > limit('NESTING'):
        raise PayloadError('the payload is nested too deeply to be sent', where=f'{key[:100]}...')
    if isinstance(value, Batch):
        return {BATCH: _mapped(value.items(), key, depth)}
    if isinstance(value, Mapping):
        if BATCH in value:
            raise PayloadError(f'the name {BATCH!r} is reserved', where=key)
        return _mapped(value.items(), key, depth)
    if isinstance(value, list | tuple):
        items = [_without_batches(item, f'{key}.{i}', depth + 1) for i, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    return value


def _mapped(items: Iterable[tuple[Any, Any]], key: str, depth: int) -> dict[Any, Any]:
    return {name: _without_batches(item, f'{key}.{name}', depth + 1) for name, item in items}


def _with_batches(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {BATCH}:
            return Batch({str(name): _with_batches(column) for name, column in value[BATCH].items()})
        return {name: _with_batches(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_with_batches(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


SECRET = 'secret'
"""File with what workers show to join."""
UP, DOWN = 'up', 'down'
"""Directions of payloads: to the coordinator, and from it."""
SHARED = 'shared'
"""In place of a direction: a payload that several workers get."""
_OURS = re.compile(rf'\d{{1,20}}-\d{{1,20}}-({UP}|{DOWN}|{SHARED})\.(safetensors|tmp)')
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk."""


class SharedFolder:
    """Payloads in a folder that the coordinator and its workers share.

    Every name consists of the number of a connection, the number of a request, and the direction; no text of a message is
    ever part of a path.

    Args:
        path: The folder.
        most_payload: Bytes that a payload may have.
    """

    def __init__(self, path: str | Path, most_payload: int) -> None:
        self.path, self._most_payload = Path(path).expanduser().absolute(), most_payload

    def payload_file(self, connection: int, seq: int, direction: str) -> Path:
        """Returns the path of a payload."""
        return self.path / f'{int(connection)}-{int(seq)}-{direction}.safetensors'

    def write(self, file: Path, payload: Any) -> None:
        """Writes a payload.

        Raises:
            PayloadError: If it is too large, has an unsupported value, or cannot be written; nothing is left behind.
                If there is only no room now, it is a ``NoRoomError``.
        """
        packed = pack(payload)
        if packed.nbytes > self._most_payload:
            raise PayloadError(
                f'the payload has {packed.nbytes:,} bytes, but max_payload_bytes is {self._most_payload:,}',
                where=str(self.path),
                remedy='Send smaller parts, or raise max_payload_bytes everywhere.',
            )
        try:
            write_file(file, packed)
        except OSError as error:
            kind = NoRoomError if error.errno in NO_ROOM else PayloadError
            raise kind(
                f'the payload of {packed.nbytes:,} bytes cannot be written: {error.strerror}',
                where=str(self.path),
                remedy='Is the disk full, and may you write there?',
            ) from error

    def take(self, file: Path) -> Any:
        """Reads a payload and deletes its file; raises like ``read_file``."""
        try:
            return read_file(file, self._most_payload)
        finally:
            file.unlink(missing_ok=True)

    @property
    def secret(self) -> str:
        """What only those know who see the folder of a coordinator; empty if there is none."""
        with suppress(CheckpointError, OSError), open_regular(self.path / SECRET) as file:
            return file.read(64).decode('ascii', 'replace')
        return ''

    def delete(self, connection: int) -> None:
        """Deletes all files of a connection."""
        for entry in self._ours():
            if entry.name.startswith(f'{int(connection)}-'):
                with suppress(OSError):
                    os.unlink(entry.path)

    def _ours(self) -> Iterator[os.DirEntry[str]]:
        """Yields the entries with a name that a transport gives."""
        with suppress(OSError), os.scandir(self.path) as entries:
            yield from (entry for entry in entries if _OURS.fullmatch(entry.name))


class OwnedFolder(SharedFolder):
    """The folder as its owner sees it: one coordinator, which creates, locks and empties it.

    What a coordinator that was killed has left behind is deleted; other files are not touched.

    Args:
        path: The folder.
        most_payload: Bytes that a payload may have.

    Raises:
        ExperimentLockedError: If another live coordinator uses it; with who that is.
        ExperimentDirError: If it cannot be created or written, or others may write to it.
    """

    def __init__(self, path: str | Path, most_payload: int) -> None:
        super().__init__(path, most_payload)
        self._is_closed = False
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ExperimentDirError(
                f'cannot make the shared folder: {error.strerror}',
                where=str(self.path),
                remedy='Name another folder with path_data.',
            ) from error
        check_writable(self.path)
        facts = self.path.stat()
        if facts.st_mode & stat.S_IWOTH or facts.st_uid not in (os.geteuid(), 0):
            raise ExperimentDirError(
                f'others could replace files in the shared folder: it belongs to user {facts.st_uid}, and its mode is'
                f' {stat.filemode(facts.st_mode)}',
                where=str(self.path),
                remedy=f'Name a folder of your own with path_data, or: chmod o-w {self.path}',
            )
        try:
            self._release = lock(self.path)
        except ExperimentLockedError as error:
            raise ExperimentLockedError(
                error.message.replace('the run folder', 'the shared folder'),
                where=str(self.path),
                remedy='Give each coordinator a folder of its own (path_data), or end the other one.',
            ) from error
        self._clean()
        descriptor = os.open(
            self.path / SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE
        )
        with os.fdopen(descriptor, 'w', encoding='ascii') as file:
            file.write(secrets.token_hex(16))

    def close(self) -> None:
        """Deletes all files of the transport, and the folder if it is empty then; may be called twice."""
        if self._is_closed:
            return  # it may be another coordinator's by now
        self._is_closed = True
        self._clean()
        self._release()
        with suppress(OSError):  # somebody may have put files into it
            self.path.rmdir()

    def _clean(self) -> None:
        for path in [str(self.path / SECRET), *(entry.path for entry in self._ours())]:
            with suppress(OSError):
                os.unlink(path)


def number_of(session: str) -> int:
    """Returns the number of a connection in the names of its files: the same at both ends, and never 0."""
    return 1 + int.from_bytes(hashlib.sha256(session.encode()).digest()[:7], 'big')
