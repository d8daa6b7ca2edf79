"""Columns of rows in files: arrays that grow, and are read in slices, without a copy of the whole in memory."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from rlframe.data.timestep import Array, Batch

BLOCK = 65_536
"""Rows that are read or converted at a time."""


class Column(Protocol):
    """An array, or one in a file: rows are read by a slice."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> Array: ...


Columns = Mapping[str, Column]


def row_nbytes(columns: Columns) -> int:
    """Returns the bytes of one row of columns."""
    return sum(
        int(np.prod(each.shape[1:], dtype=np.int64)) * each.dtype.itemsize for each in columns.values()
    )


def blocks(columns: Columns) -> Iterator[Batch]:
    """Yields the rows of columns in order, ``BLOCK`` at a time."""
    count = len(next(iter(columns.values())))
    for start in range(0, count, BLOCK):
        yield Batch({name: column[start : start + BLOCK] for name, column in columns.items()})


class StoredColumn:
    """An array in a file, whose rows are read when they are asked for.

    Args:
        path: The file, which may be deleted while the column exists.
        start: Byte at which the header of the array begins, in NumPy's format.

    Raises:
        ValueError: If there is no array of plain numbers, or the file is too short for it.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        with open(path, 'rb') as file:
            file.seek(start)
            version = np.lib.format.read_magic(file)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            self.shape, is_fortran, self.dtype = read(file)
            self._offset = file.tell()
            if self.dtype.hasobject:
                raise ValueError('it holds Python objects')
            if is_fortran and len(self.shape) > 1:
                raise ValueError(
                    'its rows are not contiguous (Fortran order): save np.ascontiguousarray of it'
                )
            self._row_nbytes = row_nbytes({'': self})
            if self._offset + len(self) * self._row_nbytes > os.fstat(file.fileno()).st_size:
                raise ValueError('the file ends before its last row')
            self._descriptor = os.dup(file.fileno())

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 1

    def __getitem__(self, rows: slice) -> Array:
        start, stop, step = rows.indices(len(self))
        out = np.empty((max(stop - start, 0), *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out[::step]

    def read_into(self, start: int, out: Array) -> None:
        """Reads the rows from ``start`` on into a contiguous array.

        Raises:
            OSError: If the file has become shorter.
        """
        view = out.reshape(-1).view(np.uint8).data if out.size else memoryview(b'')
        position = self._offset + start * self._row_nbytes
        while len(view):
            count = os.preadv(self._descriptor, [view], position)
            if not count:
                raise OSError('a file of recorded data has become shorter')
            view = view[count:]
            position += count

    def __del__(self) -> None:
        if hasattr(self, '_descriptor'):  # not if the file could not be opened
            os.close(self._descriptor)


class ColumnFiles:
    """Columns that grow at their end, each in a file ``NAME.npy`` of a folder.

    Args:
        folder: The folder, which is created; columns in it go on to grow.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = 0
        """Rows of each column."""
        self._files: dict[str, BinaryIO] = {}
        self._kinds: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob('*.npy')):
            column = StoredColumn(path)
            self._kinds[path.stem] = (column.dtype, column.shape[1:])
            self._files[path.stem] = open(path, 'r+b')  # noqa: SIM115  closed by close()
            self.rows = len(column)
        self.truncate(self.rows)

    def append(self, rows: Batch) -> None:
        """Writes rows behind the last one.

        Raises:
            ValueError: If their columns differ from those before in name, type or shape.
        """
        kinds = {name: (column.dtype, column.shape[1:]) for name, column in rows.items()}
        if not self._kinds:
            self._kinds = kinds
            paths = {name: self.folder / f'{name}.npy' for name in kinds}
            self._files = {name: open(path, 'w+b') for name, path in paths.items()}  # noqa: SIM115  closed by close()
            self.truncate(0)
        if kinds != self._kinds:
            raise ValueError(f'the columns were {self._kinds}, and are {kinds}')
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(rows[name]).reshape(-1).view(np.uint8).data)
        self.rows += len(rows)

    def truncate(self, rows: int) -> None:
        """Drops the rows behind the first ``rows``, and writes how many there are."""
        self.rows = rows
        for name, file in self._files.items():
            dtype, shape = self._kinds[name]
            header = _header(dtype, (rows, *shape))
            file.seek(0)
            file.write(header)
            file.truncate(len(header) + rows * dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
            file.seek(0, io.SEEK_END)
            file.flush()

    def columns(self) -> dict[str, StoredColumn]:
        """Returns the columns, to read."""
        self.truncate(self.rows)
        return {name: StoredColumn(self.folder / f'{name}.npy') for name in self._files}

    def close(self) -> None:
        """Completes and closes the files."""
        self.truncate(self.rows)
        for file in self._files.values():
            file.close()
        self._files = {}


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Returns a header of NumPy's format, which is as long for any number of rows."""
    text = io.BytesIO()
    facts = {'descr': np.lib.format.dtype_to_descr(dtype), 'fortran_order': False, 'shape': shape}
    np.lib.format.write_array_header_2_0(text, facts)
    return text.getvalue()


def gathered(parts: Iterator[Batch], rows: int, limit: float) -> dict[str, Column]:
    """Returns the columns of rows that come in parts: in memory, or beyond a limit in files that vanish with them.

    Args:
        parts: The rows in order.
        rows: At least as many as there are.
        limit: Bytes that they may occupy in memory.

    Raises:
        ValueError: If there are no rows, or the parts have other columns than the first one.
    """
    first = next(parts, None)
    if first is None:
        raise ValueError('there are no rows')
    if rows * first.nbytes() / max(len(first), 1) > limit:
        return _in_files(first, parts)
    columns = {name: np.empty((rows, *c.shape[1:]), c.dtype) for name, c in first.items()}
    count = 0
    part: Batch | None = first
    while part is not None:
        if part.keys() != columns.keys():
            raise ValueError(f'the columns are {list(columns)} first, and {list(part.keys())} later')
        for name, column in columns.items():
            column[count : count + len(part)] = part[name]
        count += len(part)
        part = next(parts, None)
    return {name: column[:count] for name, column in columns.items()}


def _in_files(first: Batch, parts: Iterator[Batch]) -> dict[str, Column]:
    """Writes rows to files of a temporary folder, which is deleted: the space is freed with the columns."""
    with tempfile.TemporaryDirectory(prefix='rlframe-data-') as folder:
        files = ColumnFiles(Path(folder))
        files.append(first)
        for part in parts:
            files.append(part)
        columns = files.columns()
        files.close()
    return {**columns}
