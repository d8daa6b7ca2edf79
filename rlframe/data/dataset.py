"""Recorded data for learning: files, torch data sets and loaders, behind one interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from rlframe.data.observation import (
    MASK_PATH,
    bounds_of,
    check_action_bounds,
    check_mask_values,
    obs_dtype,
    plain_parts,
)
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec
from rlframe.errors import ConfigError, named_during
from rlframe.registry import named_object
from rlframe.utils.serialize import leaves


def check_batch(batch: Batch, spec: EnvSpec, where: str, rows: Array | None = None) -> None:
    """Checks that a batch of data matches the spaces of an env.

    Args:
        batch: The data.
        spec: Spaces of the env.
        where: The option that names the data, for the error.
        rows: Numbers of the rows in the data, [n]; by default those in the batch.

    Raises:
        ConfigError: If there are no observations or no actions, they have another shape, an observation is not finite
            or has fractions where the env gives whole numbers, or an action is not in the action space; the first such
            row is named.
        ActionMaskError: If an action mask has other values than 0 and 1.
    """
    declared = {'obs': obs_dtype(spec.observation_space)[1], 'action': tuple(spec.action_space.shape or ())}
    for name, shape in declared.items():
        if name not in batch:
            raise ConfigError(
                f'the data have no column {name}',
                where=where,
                got=list(batch.keys()),
                expected="'obs' and 'action'",
            )
        if tuple(batch[name].shape[1:]) != shape:
            raise ConfigError(
                f'the data do not fit {spec.name}: in the column {name} a row has another shape',
                where=where,
                got=list(batch[name].shape[1:]),
                expected=str(list(shape)),
            )
    numbers = np.arange(len(batch)) if rows is None else rows
    _check_finite(np.asarray(batch['obs']), numbers, where)
    _check_whole(np.asarray(batch['obs']), spec, numbers, where)
    _check_actions(np.asarray(batch['action']), spec, numbers, where)


def _check_finite(obs: Array, rows: Array, where: str) -> None:
    for name, values in leaves(obs, 'obs'):
        if name == MASK_PATH:
            check_mask_values(values, f'{where}: the data')
        if values.dtype.kind != 'f':
            continue
        bad = np.asarray(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        if bad.any():
            first = int(bad.argmax())
            raise ConfigError(
                f'row {rows[first]} of the data: {name} is {values[first]}{_more(bad)}',
                where=where,
                remedy='Remove such rows.',
            )


def _check_whole(obs: Array, spec: EnvSpec, rows: Array, where: str) -> None:
    parts = dict(plain_parts(spec.observation_space))
    for name, values in leaves(obs, 'obs'):
        space = parts.get(name)
        if values.dtype.kind != 'f' or space is None or np.dtype(space.dtype).kind == 'f':
            continue
        bad = (values != np.floor(values)).reshape(len(values), -1).any(axis=1)
        if bad.any():
            low, high = bounds_of(space)
            raise ConfigError(
                f'row {rows[int(bad.argmax())]} of the data: {name} has fractions{_more(bad)}, and {spec.name} gives'
                f' {space.dtype} in [{np.min(low)}, {np.max(high)}]',
                where=where,
                got=f'{values.dtype} in [{values.min():g}, {values.max():g}]',
                expected=str(space.dtype),
                remedy='Record observations as the env gives them: multiply pixels in [0, 1] by the largest value.',
            )


def _check_actions(action: Array, spec: EnvSpec, rows: Array, where: str) -> None:
    bad = ~_are_in(action, spec.action_space)
    if bad.any():
        first = int(bad.argmax())
        raise ConfigError(
            f'row {rows[first]} of the data: an action is not in the action space of {spec.name}{_more(bad)}',
            where=where,
            got=action[first].tolist(),
            expected=repr(spec.action_space),
        )


def _are_in(action: Array, space: Any) -> BoolArray:
    """Returns a mask of the actions, [n, ...], that a space contains, [n]."""
    if action.dtype.kind not in 'biuf':
        return np.zeros(len(action), np.bool_)
    if hasattr(space, 'parts'):  # a Composite
        found: BoolArray = space.inside(action)
        return found
    low, high = bounds_of(space)
    is_real = np.dtype(space.dtype).kind == 'f'
    values = action.astype(space.dtype) if is_real else action
    inside = (values >= low) & (values <= high) & (is_real | (values == np.floor(values)))
    return np.asarray(np.reshape(inside, (len(action), -1)).all(axis=1))


def _more(bad: BoolArray) -> str:
    count = int(bad.sum()) - 1
    return f' (and {count} more)' if count else ''


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
    """Data that come as batches, pairs ``(obs, action)`` or mappings, whose size and order the loader decides."""

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
        found = named_object(data, where)
        return open_data(found() if callable(found) and not hasattr(found, '__iter__') else found, where)
    if isinstance(data, Mapping):
        return RowSource(Batch(data), where)
    if not isinstance(data, str | bytes):
        if hasattr(data, '__getitem__') and hasattr(data, '__len__'):
            return RowSource(data, where)
        if hasattr(data, '__iter__'):
            return LoaderSource(data, where)
    raise ConfigError('bad value', where=where, got=data, expected=f'the {DATA_FORMS}')


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
