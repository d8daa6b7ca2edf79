"""Files of recorded data: NumPy's .npz, Parquet and HDF5 of others; for Minari see ``minari_data``. No pickle is read."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe.data import minari_data
from rlframe.data.columns import BLOCK, Column, StoredColumn, blocks
from rlframe.data.recording import FACTS, KNOWN, NAMES, Found, Recording, read_facts, recording_of
from rlframe.data.timestep import Array, Batch
from rlframe.errors import ConfigError, MissingDependencyError, nearest
from rlframe.utils.files import whole_file
from rlframe.utils.lazy import LazyModule

h5py, pyarrow, parquet = LazyModule('h5py'), LazyModule('pyarrow'), LazyModule('pyarrow.parquet')

GIB = 2**30
LIMIT = 4.0
"""GiB that recorded data may occupy in memory by default."""
INSTALL = "pip install 'rlframe[data]'"
PICKLES = ('.pkl', '.pickle', '.pt', '.pth', '.npy', '.tar')


class Format(NamedTuple):
    """A form of recorded data on disk."""

    suffixes: tuple[str, ...]
    """Endings of its paths."""
    read: Callable[[Path], Found]
    """Opens a path, and reads what it needs to know before rows are read."""
    write: Callable[[Recording, Path], None] | None = None
    """Writes a recording; None: it is only read."""
    package: str = ''
    """Package that it needs."""


# .npz


def _read_npz(path: Path) -> Found:
    with zipfile.ZipFile(path) as archive:
        members = {m.filename.removesuffix('.npy'): m for m in archive.infolist()}
        facts = members.pop(FACTS, None)
        text = (
            None if facts is None else str(np.lib.format.read_array(archive.open(facts), allow_pickle=False))
        )
        columns: dict[str, StoredColumn] = {}
        for name, member in members.items():
            try:
                columns[name] = _member(path, archive, member)
            except ValueError as error:
                raise ValueError(f'the column {name} cannot be read: {error}') from error
    rows = {name: len(column) for name, column in columns.items() if column.shape}
    columns = {name: columns[name] for name in rows}
    if len(set(rows.values())) > 1:
        raise ValueError(f'its columns need one shared length, got {rows}')
    return Found(max(rows.values(), default=0), _of_columns(columns), read_facts(text, str(path)), columns)


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> StoredColumn:
    """Returns an array of an archive, from a temporary file if it is compressed."""
    if member.compress_type == zipfile.ZIP_STORED:
        with open(path, 'rb') as file:
            file.seek(member.header_offset)
            header = file.read(30)
        lengths = struct.unpack('<HH', header[26:30])  # of the name, and of what follows it
        return StoredColumn(path, member.header_offset + 30 + sum(lengths))
    with tempfile.NamedTemporaryFile(prefix='rlframe-data-') as draft, archive.open(member) as packed:
        while piece := packed.read(2**20):
            draft.write(piece)
        draft.flush()
        return StoredColumn(Path(draft.name))


def _of_columns(columns: Mapping[str, Column]) -> Iterator[Batch]:
    if not columns:
        return
    yield from blocks(columns)


def _write_npz(recording: Recording, path: Path) -> None:
    with whole_file(path, is_private=False) as draft, zipfile.ZipFile(draft, 'w', allowZip64=True) as archive:
        for name, column in recording.columns.items():
            with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
                facts = {'descr': np.lib.format.dtype_to_descr(column.dtype), 'fortran_order': False}
                np.lib.format.write_array_header_2_0(member, {**facts, 'shape': column.shape})
                for block in blocks({name: column}):
                    member.write(np.ascontiguousarray(block[name]).tobytes())
        with archive.open(f'{FACTS}.npy', 'w') as member:
            np.lib.format.write_array(member, np.array(json.dumps(recording.facts)), allow_pickle=False)


# Parquet


def _read_parquet(path: Path) -> Found:
    file = parquet.ParquetFile(path)
    metadata = file.schema_arrow.metadata or {}
    facts = read_facts(metadata.get(FACTS.encode()), str(path))
    columns: Mapping[str, Any] = facts.pop('columns', {})
    return Found(file.metadata.num_rows, _of_tables(file, columns), facts)


def _of_tables(file: Any, columns: Mapping[str, Any]) -> Iterator[Batch]:
    """Yields the rows of a Parquet file, whose columns have the types and shapes that the facts say, or their own."""
    for table in file.iter_batches(BLOCK):
        found: dict[str, Array] = {}
        for name in table.schema.names:
            column = table.column(name)
            if column.null_count:
                raise ValueError(f'the column {name} has {column.null_count} rows without a value')
            plain = _plain_of(column, name)
            if name in columns:
                kind = np.lib.format.descr_to_dtype(_as_descr(columns[name]['dtype']))
                plain = (
                    np.ascontiguousarray(plain).view(kind) if kind.names else plain.astype(kind, copy=False)
                )
                plain = plain.reshape(len(table), *columns[name]['shape'])
            found[name] = plain
        yield Batch(found)


def _plain_of(column: Any, name: str) -> Array:
    """Returns a column of a table as numbers, with an axis for lists of equal length."""
    axes = []
    while isinstance(column, pyarrow.ListArray | pyarrow.LargeListArray | pyarrow.FixedSizeListArray):
        lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False)) if len(column) else [0]
        if len(lengths) != 1:
            raise ValueError(f'the lists in the column {name} differ in length')
        axes.append(int(lengths[0]))
        column = column.flatten()
    return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(-1, *axes)


def _as_descr(descr: Any) -> Any:
    """Returns the description of a type from JSON, where tuples are lists."""
    if not isinstance(descr, list):
        return descr
    return [(name, _as_descr(kind), *map(tuple, shape)) for name, kind, *shape in descr]


def _write_parquet(recording: Recording, path: Path) -> None:
    columns = {
        name: {'dtype': np.lib.format.dtype_to_descr(column.dtype), 'shape': column.shape[1:]}
        for name, column in recording.columns.items()
    }
    metadata = {FACTS: json.dumps({**recording.facts, 'columns': columns})}
    writer = None
    with whole_file(path, is_private=False) as draft:
        for block in blocks(recording.columns):
            table = pyarrow.table({name: _as_arrow(column) for name, column in block.items()})
            if writer is None:
                writer = parquet.ParquetWriter(draft, table.schema.with_metadata(metadata))
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _as_arrow(column: Array) -> Any:
    """Returns a column for a table: rows of several numbers as lists of equal length, rows with fields as their bytes."""
    rows = column if column.dtype.names is None else column.reshape(len(column), -1).view(np.uint8)
    flat = pyarrow.array(np.ascontiguousarray(rows).reshape(-1))
    return (
        flat if rows.ndim == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, int(np.prod(rows.shape[1:])))
    )


# HDF5 of D4RL and DI-engine


def _read_hdf5(path: Path) -> Found:
    file = h5py.File(path, 'r')
    if 'episode_0' in file:
        raise ValueError('this is the file within a Minari data set: name its folder')
    names = [name for name in file if NAMES.get(name, name) in KNOWN and hasattr(file[name], 'dtype')]
    rows = {name: len(file[name]) for name in names}
    if len(set(rows.values())) > 1:
        raise ValueError(f'its columns need one shared length, got {rows}')
    if not names:
        raise ValueError(f'there are no columns of recorded data: {sorted(file)[:10]}')
    text = file.attrs.get(FACTS)
    return Found(rows[names[0]], blocks({name: file[name] for name in names}), read_facts(text, str(path)))


FORMATS = {
    'minari': Format(('',), minari_data.read, minari_data.write, 'minari'),
    'npz': Format(('.npz',), _read_npz, _write_npz),
    'parquet': Format(('.parquet', '.pq'), _read_parquet, _write_parquet, 'pyarrow'),
    'hdf5': Format(('.hdf5', '.h5'), _read_hdf5, package='h5py'),
}
"""Forms of recorded data, by name; the ending of a path tells which it is."""


def format_of(path: Path, name: str | None = None) -> str:
    """Returns the name of a format: the given one, or that of the ending of a path; a path without an ending is Minari's.

    Raises:
        ConfigError: If there is no such format.
    """
    if name is not None and name not in FORMATS:
        raise ConfigError('bad value', where='--format', got=name, expected=f'one of {", ".join(FORMATS)}')
    if name is not None:
        return name
    found = [
        name for name, one in FORMATS.items() if path.suffix.lower() in one.suffixes and name != 'minari'
    ]
    if not found and path.suffix.lower() in PICKLES:
        raise ConfigError(
            f'{path.name} may hold a pickle, which can run code when it is read',
            where='data',
            got=path.suffix,
            expected=_endings(),
            remedy='Write its arrays once with numpy.savez, in a program that you trust.',
        )
    if not found and re.fullmatch(r'\.[a-z]\w{0,6}', path.suffix) and not path.is_dir():
        raise ConfigError(
            f'{path.name} is no recorded data',
            where='data',
            got=path.suffix,
            expected=f'{_endings()}, or a folder of Minari',
        )
    return found[0] if found else 'minari'


def _endings() -> str:
    """Returns the endings of files of recorded data."""
    return ', '.join(each for one in FORMATS.values() for each in one.suffixes if each)


def read_recording(
    path: str | Path, where: str = 'data', limit: float = LIMIT, download: bool = False
) -> Recording:
    """Returns the recording of a path, or of an id of Minari whose data are on this machine.

    Args:
        path: File or folder; or an id.
        where: The option that names it, for errors.
        limit: GiB that it may occupy in memory; more is read from disk.
        download: Whether Minari may fetch an id that is not here.

    Raises:
        ConfigError: If there is no such file, it is damaged, or its columns are not those of recorded data.
        MissingDependencyError: If a package is missing.
    """
    name, found_at = _located(path, where, download)
    with readable(found_at, name, where):
        found = FORMATS[name].read(found_at)
        recording = recording_of(found, str(path), name, limit * GIB)
    if not len(recording):
        raise ConfigError('the data contain no rows', where=where, got=str(path))
    return recording


def _located(path: str | Path, where: str, download: bool) -> tuple[str, Path]:
    """Returns the format and the place of recorded data."""
    name = _named(path, where)
    found_at = minari_data.find(str(path), where, download) if name == 'minari' else Path(path)
    if not found_at.exists():
        raise ConfigError(
            f'no such file: {found_at.absolute()}{_beside(found_at)}',
            where=where,
            remedy='Record the data first.',
        )
    if found_at.is_dir() and name != 'minari':
        raise ConfigError(f'{found_at} is a folder, not a file', where=where)
    return name, found_at


def peek(path: str | Path, where: str = 'data', download: bool = False) -> Recording:
    """Returns the facts and the first rows of recorded data, without reading the others; the errors are those of ``read_recording``."""
    name, found_at = _located(path, where, download)
    with readable(found_at, name, where):
        found = FORMATS[name].read(found_at)
        first = next(found.parts, None)
        if first is None:
            raise ConfigError('the data contain no rows', where=where, got=str(path))
        return recording_of(Found(len(first), iter([first]), found.facts), str(path), name, np.inf)


def _named(path: str | Path, where: str) -> str:
    """Returns the format of a path that an option names."""
    try:
        return format_of(Path(path))
    except ConfigError as error:
        error.where = where
        raise


def _beside(path: Path) -> str:
    """Names the file that was probably meant."""
    folder = path.absolute().parent
    return nearest(path.name, [each.name for each in folder.iterdir()]) if folder.is_dir() else ''


@contextmanager
def readable(path: Path, name: str, where: str, done: str = 'read') -> Iterator[None]:
    """Turns the errors of a library that reads or writes a format into ours.

    Raises:
        ConfigError: With the path.
        MissingDependencyError: With the package to install.
    """
    try:
        yield
    except ConfigError as error:
        error.where = where if error.where == 'data' else error.where
        raise
    except ImportError as error:
        package = FORMATS[name].package
        raise MissingDependencyError(
            f'{name} needs the package {package}', where=where, remedy=f'Install it: {INSTALL}; or use .npz.'
        ) from error
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f'{path} cannot be {done} as {name}: {error}',
            where=where,
            remedy='Arrays of objects, which are pickles, are not read.'
            if 'object' in str(error).lower()
            else '',
        ) from error


def check_target(path: Path, format_: str | None, where: str = '--out') -> None:
    """Checks that data can be written to a path, before anything is recorded.

    Raises:
        ConfigError: If it exists, nothing can be written there, or the format is unknown or only read.
        MissingDependencyError: If a package is missing.
    """
    name = _named(path, where) if format_ is None else format_of(path, format_)
    if FORMATS[name].write is None:
        raise ConfigError(f'{name} is only read', where=where, got=name, expected='minari, npz or parquet')
    if name != format_of(path):
        endings = FORMATS[name].suffixes
        raise ConfigError(
            f'{path.name} would be read as {format_of(path)}, by its ending, and is to be written as {name}',
            where=where,
            got=path.suffix,
            expected=' or '.join(endings) if all(endings) else 'a path without an ending',
            remedy='Or leave --format out.',
        )
    if path.exists():
        raise ConfigError(
            f'{path.absolute()} exists', where=where, remedy='Choose another path, or delete it.'
        )
    package = FORMATS[name].package
    with readable(path, name, where, 'written'):
        if package:
            importlib.import_module(package)
        folder = next(each for each in path.absolute().parents if each.exists())
        tempfile.TemporaryFile(dir=folder).close()


def write_recording(recording: Recording, path: str | Path, format_: str | None = None) -> Path:
    """Writes a recording, and returns its path.

    Raises:
        ConfigError: If the format is only read, or the path exists already as something else.
        MissingDependencyError: If a package is missing.
    """
    path = Path(path)
    name = format_of(path, format_)
    write = FORMATS[name].write
    if write is None:
        raise ConfigError(
            f'{name} is only read', where='--format', got=name, expected='minari, npz or parquet'
        )
    facts = {**recording.facts, 'sha256': recording.digest()}
    with readable(path, name, '--out', 'written'):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(dataclasses.replace(recording, facts=facts), path)
    return path
