"""Recorded data to learn from: files, torch data sets and loaders, behind one interface."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array
from rlframe.errors import ConfigError

PAIR = 'obs', 'action'
"""Columns of data that come as pairs."""


class DataSource(ABC):
    """Data that can be gone through again and again, a batch at a time."""

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        """Goes through all data once. What is drawn for the order is drawn at once where batches are left out.

        Args:
            size: Rows of a batch; the last one may have fewer.
            rng: Generator of the order.
            skip: Batches to leave out at the beginning, as they were read before.
        """

    def close(self) -> None:  # noqa: B027  a source without anything to close is whole, too
        """Does nothing: the data stay their maker's to close."""


class RowSource(DataSource):
    """Data whose rows can be picked: columns, or a torch data set; each pass has an order of its own.

    Args:
        rows: A ``Batch``, or anything with a length whose item ``i`` is a pair ``(obs, action)`` or a mapping.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        order = rng.permutation(len(self._rows))
        starts = range(skip * size, len(order), size)
        return (self._pick(order[start : start + size]) for start in starts)

    def _pick(self, index: Array) -> Batch:
        if isinstance(self._rows, Batch):
            picked: Batch = self._rows[index]
            return picked
        return Batch.from_rows([_named(self._rows[int(i)]) for i in index])


class LoaderSource(DataSource):
    """Data that come as batches, from a ``DataLoader`` for example, which decides about their size and order.

    Args:
        loader: Iterable of batches: pairs ``(obs, action)`` or mappings.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        iterator = iter(self._loader)
        for _ in range(skip):
            next(iterator)
        return (Batch({n: np.asarray(column) for n, column in _named(batch).items()}) for batch in iterator)


def open_data(data: Any) -> DataSource:
    """Returns a source of data.

    Args:
        data: Path of an ``.npz`` file with the columns ``obs`` and ``action``; ``'module:name'`` of one of the following, or
            of a function that makes it; a torch ``Dataset``; a ``DataLoader`` or another iterable of batches.

    Raises:
        ConfigError: If there are no such data.
    """
    if isinstance(data, DataSource):
        return data
    if isinstance(data, str | Path) and str(data).endswith('.npz'):
        return RowSource(_read_npz(Path(data)))
    if isinstance(data, str) and ':' in data:
        found = _import(data)
        return open_data(found() if callable(found) and not hasattr(found, '__iter__') else found)
    if isinstance(data, Mapping):
        return RowSource(Batch(data))
    if not isinstance(data, str | bytes):
        if hasattr(data, '__getitem__') and hasattr(data, '__len__'):
            return RowSource(data)
        if hasattr(data, '__iter__'):
            return LoaderSource(data)
    raise ConfigError(
        'bad value',
        where='policy.collect.collector.data',
        got=data,
        expected="the path of an .npz file, 'module:name', a torch Dataset or a DataLoader",
    )


def _read_npz(path: Path) -> Batch:
    where = 'policy.collect.collector.data'
    if not path.is_file():
        raise ConfigError(f'no such file: {path.absolute()}', where=where, remedy='Record the data first.')
    with np.load(path, allow_pickle=False) as file:
        columns = {name: file[name] for name in file.files}
    if missing := set(PAIR) - set(columns):
        raise ConfigError(
            f'{path} has no column {" nor ".join(sorted(missing))}',
            where=where,
            got=sorted(columns),
            expected="'obs' and 'action' with a row for each env step",
        )
    return Batch(columns)


def _import(name: str) -> Any:
    module, _, attribute = name.partition(':')
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f'cannot import {name!r}: {error}', where='policy.collect.collector.data'
        ) from error


def _named(item: Any) -> dict[str, Any]:
    """Returns the columns of an item that is a pair or a mapping."""
    if isinstance(item, Mapping):
        return {**item}
    if isinstance(item, tuple | list) and len(item) == len(PAIR):
        return dict(zip(PAIR, (np.asarray(part) for part in item), strict=True))
    raise ConfigError(
        f'an item of the data is a {type(item).__name__}',
        where='policy.collect.collector.data',
        expected='a pair (obs, action) or a mapping with these names',
        got=type(item).__name__,
    )
