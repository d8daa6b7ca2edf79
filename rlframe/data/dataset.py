"""Recorded data for learning: files, torch data sets and loaders, behind one interface."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from rlframe.data.action_bounds import check_action_bounds
from rlframe.data.batch import Batch
from rlframe.data.dataset_check import check_batch
from rlframe.data.timestep import Array, EnvSpec
from rlframe.errors import ConfigError, named_during

PAIR = 'obs', 'action'
"""Column names of data that come as pairs."""
COLLECTOR_DATA = 'policy.collect.collector.data'
DATA_FORMS = (
    "path of an .npz file with the columns obs and action, 'module:name', a torch Dataset or a DataLoader"
)
"""Description of the values that ``open_data`` accepts, for the documentation of options."""


class DataSource(ABC):
    """Data that can be iterated over repeatedly, one batch at a time."""

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        """Goes through all data once. Random numbers for the order are drawn up front, even for skipped batches.

        Args:
            size: Rows of a batch; the last one may have fewer.
            rng: Generator of the order.
            skip: Number of batches to skip at the beginning, as they were read before.
        """

    def check(self, spec: EnvSpec, where: str) -> None:  # noqa: B027  a custom source need not override it
        """Checks that the data match the spaces of an env, now or when they are read."""

    def close(self) -> None:  # noqa: B027  a source without anything to close is whole, too
        """Does nothing: the data are closed by their creator."""


class RowSource(DataSource):
    """Data with random access to rows: columns, or a torch data set; each pass has its own order.

    Args:
        rows: A ``Batch``, or anything with a length whose item ``i`` is a pair ``(obs, action)`` or a mapping.
        where: The option that named the data, for errors.

    Raises:
        ConfigError: If there are no rows.
    """

    def __init__(self, rows: Any, where: str) -> None:
        if len(rows) == 0:
            raise ConfigError('the data contain no rows', where=where)
        self._rows, self._where = rows, where
        self._spec: EnvSpec | None = None  # rows that still need checking

    def check(self, spec: EnvSpec, where: str) -> None:
        if isinstance(self._rows, Batch):
            check_batch(self._rows, spec, where)
        else:
            self._spec, self._where = spec, where
            self._pick(np.zeros(1, np.int64))

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        order = rng.permutation(len(self._rows))
        starts = range(skip * size, len(order), size)
        return (self._pick(order[start : start + size]) for start in starts)

    def _pick(self, index: Array) -> Batch:
        if isinstance(self._rows, Batch):
            picked: Batch = self._rows[index]
            return picked
        batch = Batch.from_rows([_named(self._rows[int(i)], self._where) for i in index])
        if self._spec is not None:
            check_batch(batch, self._spec, self._where, index)
        return batch


class LoaderSource(DataSource):
    """Data that come as batches, from a ``DataLoader`` for example, which decides on their size and order.

    Args:
        loader: Iterable of batches: pairs ``(obs, action)`` or mappings.
        where: The option that named it, for errors.
    """

    def __init__(self, loader: Iterable[Any], where: str) -> None:
        self._loader, self._where = loader, where
        self._spec: EnvSpec | None = None

    def check(self, spec: EnvSpec, where: str) -> None:
        self._spec, self._where = spec, where

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        iterator = iter(self._loader)
        for _ in range(skip):
            if next(iterator, None) is None:
                break
        return (self._columns(batch, number) for number, batch in enumerate(iterator, skip))

    def _columns(self, batch: Any, number: int) -> Batch:
        columns = Batch({n: np.asarray(column) for n, column in _named(batch, self._where).items()})
        if self._spec is not None:
            with named_during(f'batch {number}'):
                check_batch(columns, self._spec, self._where)
        return columns


def open_data(data: Any, where: str = COLLECTOR_DATA) -> DataSource:
    """Returns a source of data.

    Args:
        data: ``.npz`` file with the columns ``obs`` and ``action``; a torch ``Dataset``; a ``DataLoader`` or other
            iterable of batches; ``'module:name'`` of one of these, or of a function that creates it.
        where: The option that names the data, for errors.

    Raises:
        ConfigError: If there are no such data.
    """
    if isinstance(data, DataSource):
        return data
    if isinstance(data, str | Path) and str(data).endswith('.npz'):
        return RowSource(_read_npz(Path(data), where), where)
    if isinstance(data, str) and ':' in data:
        found = _import(data, where)
        return open_data(found() if callable(found) and not hasattr(found, '__iter__') else found, where)
    if isinstance(data, Mapping):
        return RowSource(Batch(data), where)
    if not isinstance(data, str | bytes):
        if hasattr(data, '__getitem__') and hasattr(data, '__len__'):
            return RowSource(data, where)
        if hasattr(data, '__iter__'):
            return LoaderSource(data, where)
    raise ConfigError(
        'bad value',
        where=where,
        got=data,
        expected=f'the {DATA_FORMS}',
    )


def check_source(source: DataSource, spec: EnvSpec, where: str) -> None:
    """Checks that data match an env: columns at once, other sources row by row while reading; see ``check_batch``."""
    check_action_bounds(spec)
    source.check(spec, where)


def _read_npz(path: Path, where: str) -> Batch:
    if not path.is_file():
        raise ConfigError(f'no such file: {path.absolute()}', where=where, remedy='Record the data first.')
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise ConfigError(
            f'{path} is not an archive of plain arrays',
            where=where,
            remedy='numpy.savez writes one; arrays of objects, which are pickles, are not read.',
        ) from error
    if missing := set(PAIR) - set(columns):
        raise ConfigError(
            f'{path} has no column {" nor ".join(sorted(missing))}',
            where=where,
            got=sorted(columns),
            expected="'obs' and 'action' with a row for each env step",
        )
    try:
        return Batch(columns)
    except ValueError as error:
        raise ConfigError(f'{path}: {error}', where=where) from error


def _import(name: str, where: str) -> Any:
    module, _, attribute = name.partition(':')
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f'cannot import {name!r}: {error}', where=where) from error


def _named(item: Any, where: str) -> dict[str, Any]:
    """Returns the columns of an item that is a pair or a mapping."""
    if isinstance(item, Mapping):
        return {**item}
    if isinstance(item, tuple | list) and len(item) == len(PAIR):
        return dict(zip(PAIR, (np.asarray(part) for part in item), strict=True))
    raise ConfigError(
        f'an item of the data is a {type(item).__name__}',
        where=where,
        expected='a pair (obs, action) or a mapping with these names',
        got=type(item).__name__,
    )
