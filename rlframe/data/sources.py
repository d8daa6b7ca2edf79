"""Sources of recorded data: rows in memory, batches of a loader, rows on disk, and several of them mixed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.columns import Column, Columns, StoredColumn, row_nbytes
from rlframe.data.data_checks import ENDS, check_batch, check_marks, check_spec
from rlframe.data.observation import laid_out, obs_dtype
from rlframe.data.recording import Recording
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, IntArray
from rlframe.errors import ConfigError, named_during
from rlframe.scores import number_text

PAIR = 'obs', 'action'
"""Column names of data that come as pairs."""
ROWS_OF_A_BLOCK = 1024
"""Consecutive rows that are read together."""
SHARE = 0.75
"""Share of the memory for the window; the rest is for batches."""


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

    def names(self) -> Iterable[str] | None:
        """Returns the names of its columns; None: unknown until they are read."""
        return None

    def check(self, spec: EnvSpec, where: str) -> None:  # noqa: B027  a custom source need not override it
        """Checks that the data match the spaces of an env, now or when they are read."""

    def check_ends(self, spec: EnvSpec, where: str) -> None:  # noqa: B027  a custom source need not override it
        """Checks that data with rewards say where episodes end, if all of them can be seen at once."""

    def close(self) -> None:  # noqa: B027  a source without anything to close is whole, too
        """Does nothing: the data are closed by their creator."""


class RowSource(DataSource):
    """Data with random access to rows: columns, or a torch data set; each pass has its own order.

    Args:
        rows: A ``Batch``, or anything with a length whose item ``i`` is a pair ``(obs, action)`` or a mapping.
        where: The option that named the data, for errors.
        recording: What they are from.
        numbers: Which of its rows they are, for errors, [n]; None: all.

    Raises:
        ConfigError: If there are no rows.
    """

    def __init__(
        self,
        rows: Any,
        where: str,
        recording: Recording | None = None,
        numbers: IntArray | None = None,
    ) -> None:
        if len(rows) == 0:
            raise ConfigError('the data contain no rows', where=where)
        self.rows = rows
        """The rows; as a rule a ``Batch``, in time order."""
        self.recording = recording
        """What they are from, if that is known."""
        self._where, self._numbers = where, numbers
        self._spec: EnvSpec | None = None  # rows that still need checking

    def names(self) -> Iterable[str] | None:
        return self._pick(np.zeros(1, np.int64)).keys()

    def check(self, spec: EnvSpec, where: str) -> None:
        if isinstance(self.rows, Batch):
            if self.recording is not None:
                check_spec(self.rows.columns, self.recording.spec(), spec, where)
            self.rows = fitted(self.rows, spec)
            check_batch(self.rows, spec, where, self._numbers)
        else:
            self._spec, self._where = spec, where
            self._pick(np.zeros(1, np.int64))

    def check_ends(self, spec: EnvSpec, where: str) -> None:
        if isinstance(self.rows, Batch):
            check_marks(_marks(self.rows), self.rows.keys(), spec, where)

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        order = rng.permutation(len(self.rows))
        starts = range(skip * size, len(order), size)
        return (self._pick(order[start : start + size]) for start in starts)

    def __len__(self) -> int:
        return len(self.rows)

    def _pick(self, index: Array) -> Batch:
        if isinstance(self.rows, Batch):
            picked: Batch = self.rows[index]
            return picked
        batch = Batch.from_rows([_named(self.rows[int(i)], self._where) for i in index])
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


class BlockSource(DataSource):
    """Rows on disk, of which a window is in memory at a time.

    A pass reads blocks of consecutive rows in random order, as many as fit into the window, and goes through the window's
    rows in random order: a batch mixes rows of many blocks.

    Args:
        columns: The columns.
        rows: First row of each part that is read, and the one behind its last, [k, 2].
        memory: Bytes that the window may occupy.
        where: The option that named the data, for errors.
        recording: What they are from.
    """

    def __init__(
        self, columns: Columns, rows: IntArray, memory: float, where: str, recording: Recording | None = None
    ) -> None:
        self._columns, self._where = columns, where
        self.recording = recording
        """What they are from, if that is known."""
        joined = rows[0:1].tolist()
        for start, stop in rows[1:].tolist():
            if start == joined[-1][1]:
                joined[-1][1] = stop
            else:
                joined.append([start, stop])
        self._blocks = np.array(
            [
                (first, min(first + ROWS_OF_A_BLOCK, stop))
                for start, stop in joined
                for first in range(start, stop, ROWS_OF_A_BLOCK)
            ]
        )
        size = max(int(SHARE * memory / row_nbytes(columns)), ROWS_OF_A_BLOCK)
        self._size = min(size, int(np.diff(self._blocks).sum()))
        self._window: dict[str, Array] = {}
        self._spec: EnvSpec | None = None

    def __len__(self) -> int:
        return int(np.diff(self._blocks).sum())

    def names(self) -> Iterable[str] | None:
        return self._columns.keys()

    def check(self, spec: EnvSpec, where: str) -> None:
        self._spec, self._where = spec, where
        check_spec(self._columns, None if self.recording is None else self.recording.spec(), spec, where)
        for start, stop in self._blocks.tolist():
            rows = fitted(self._read(self._columns, start, stop), spec)
            check_batch(rows, spec, where, np.arange(start, stop))

    def check_ends(self, spec: EnvSpec, where: str) -> None:
        flags = {name: self._columns[name] for name in ENDS if name in self._columns}
        found = [_marks(self._read(flags, start, stop)) for start, stop in self._blocks.tolist() if flags]
        marks = [each for each in found if each is not None]
        check_marks(np.concatenate(marks) if marks else None, self._columns.keys(), spec, where)

    def _read(self, columns: Columns, start: int, stop: int) -> Batch:
        """Reads consecutive rows."""
        return Batch({name: column[start:stop] for name, column in columns.items()})

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng(rng.integers(2**32, size=4))
        return self._pass(size, order, skip)

    def _pass(self, size: int, order: np.random.Generator, skip: int) -> Iterator[Batch]:
        blocks = self._blocks[order.permutation(len(self._blocks))]
        lengths = (blocks[:, 1] - blocks[:, 0]).tolist()
        held: IntArray = np.zeros(0, np.int64)  # rows that did not fill a batch of the window before
        first = 0
        while first < len(blocks):
            last = first + _fitting(lengths[first:], self._size)
            group = blocks[first:last]
            numbers = np.concatenate([np.arange(*block) for block in group.tolist()])
            index = order.permutation(len(numbers))
            total = len(held) + len(index)
            count = -(-total // size) if last == len(blocks) else total // size
            if skip < count:
                yield from self._of_window(group, held, index, range(skip, count), size)
            used = count * size - len(held)
            held = np.concatenate([held[count * size :], numbers[index[max(used, 0) :]]])
            skip = max(skip - count, 0)
            first = last

    def _of_window(
        self, group: IntArray, held: IntArray, index: IntArray, batches: range, size: int
    ) -> Iterator[Batch]:
        """Reads blocks into the window, and yields some of its batches, the first of which begin with the held rows."""
        if not self._window:
            self._window = {
                n: np.empty((self._size, *c.shape[1:]), c.dtype) for n, c in self._columns.items()
            }
        before = self._single(held)
        at = 0
        for start, stop in group.tolist():
            for name, column in self._columns.items():
                _read_into(column, start, self._window[name][at : at + stop - start])
            at += stop - start
        for number in batches:
            start, stop = number * size - len(held), (number + 1) * size - len(held)
            picked = index[max(start, 0) : max(stop, 0)]
            rows = Batch.unchecked(
                {name: column[picked] for name, column in self._window.items()}, len(picked)
            )
            if start < 0:
                early = before[number * size : (number + 1) * size]
                rows = Batch.cat([early, rows])
            yield rows if self._spec is None else fitted(rows, self._spec)

    def _single(self, rows: IntArray) -> Batch:
        """Reads single rows."""
        found = {n: np.empty((len(rows), *c.shape[1:]), c.dtype) for n, c in self._columns.items()}
        for name, column in self._columns.items():
            for i, row in enumerate(rows.tolist()):
                _read_into(column, row, found[name][i : i + 1])
        return Batch.unchecked(found, len(rows))


def _marks(rows: Batch) -> BoolArray | None:
    """Returns whether each row ends an episode, [n]; None if the data do not say it."""
    flags = [np.asarray(rows[name], np.bool_) for name in ENDS if name in rows]
    return np.logical_or.reduce(flags) if flags else None


def _fitting(lengths: Sequence[int], most: int) -> int:
    """Returns how many of the first blocks have at most so many rows together, at least one."""
    total = np.cumsum(lengths)
    return max(int(np.searchsorted(total, most, 'right')), 1)


def _read_into(column: Column, start: int, out: Array) -> None:
    if isinstance(column, StoredColumn):
        column.read_into(start, out)
    else:
        out[:] = column[start : start + len(out)]


class MixedSource(DataSource):
    """Several data as one: each batch has a fixed number of rows of each.

    A pass has as many batches as all rows fill; data whose share is larger than that of their rows are gone through again.

    Args:
        sources: The data, which know their number of rows.
        weights: Share of a batch that is from each; None: by their rows.
        where: The option that named the data, for errors.
    """

    def __init__(
        self, sources: Sequence[RowSource | BlockSource], weights: Sequence[float] | None, where: str
    ) -> None:
        self.sources = sources
        """The data."""
        self.is_by_rows = weights is None
        """Whether all rows are drawn equally often."""
        shares = np.asarray(weights or [len(source) for source in sources], np.float64)
        self._weights = shares / shares.sum()
        self._where = where

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def names(self) -> Iterable[str] | None:
        found = [source.names() for source in self.sources]
        return set.intersection(*(set(names) for names in found if names is not None))

    def check(self, spec: EnvSpec, where: str) -> None:
        for number, source in enumerate(self.sources, 1):
            with named_during(_name(source, number)):
                source.check(spec, where)

    def check_ends(self, spec: EnvSpec, where: str) -> None:
        for number, source in enumerate(self.sources, 1):
            with named_during(_name(source, number)):
                source.check_ends(spec, where)

    def check_size(self, size: int) -> None:
        """Checks that a batch of ``size`` rows can have rows of all data.

        Raises:
            ConfigError: If it cannot.
        """
        self._counts(size)

    def close(self) -> None:
        for source in self.sources:
            source.close()

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        seeds = [rng.integers(2**32, size=4).tolist() for _ in self.sources]
        counts = self._counts(size)
        total = -(-len(self) // size)
        streams = [
            self._stream(source, count, seed, skip)
            for source, count, seed in zip(self.sources, counts, seeds, strict=True)
        ]
        return (joined([next(stream) for stream in streams]) for _ in range(skip, total))

    def _counts(self, size: int) -> list[int]:
        """Returns the rows of a batch that are from each, which are together ``size``."""
        exact = self._weights * size
        counts: IntArray = np.floor(exact).astype(int)
        rest = np.argsort(counts - exact, kind='stable')[: size - counts.sum()]
        counts[rest] += 1
        for source, count in zip(self.sources, counts.tolist(), strict=True):
            if not 0 < count <= len(source):
                raise ConfigError(
                    f'a batch of {size} rows cannot have {count} of {len(source)} rows',
                    where=self._where,
                    got=[number_text(share) for share in self._weights.tolist()],
                    expected='weights by which each data give at least one row, and at most all of theirs',
                    remedy=f'Set collector.mix, or take {"smaller" if count else "larger"} batches (policy.learn.batch_size).',
                )
        return [int(count) for count in counts]

    def _stream(
        self, source: RowSource | BlockSource, count: int, seed: list[int], skip: int
    ) -> Iterator[Batch]:
        """Yields batches of ``count`` rows of one of the data without end; the short one at the end of a pass is left out."""
        in_a_pass = len(source) // count
        number, skip = divmod(skip, in_a_pass)
        while True:
            found = source.batches(count, np.random.default_rng([*seed, number]), skip)
            for _ in range(skip, in_a_pass):
                yield next(found)
            number += 1
            skip = 0


def _name(source: RowSource | BlockSource, number: int) -> str:
    """Returns the path of one of several data, or its number."""
    return f'data {number}' if source.recording is None else source.recording.where


def joined(parts: list[Batch]) -> Batch:
    """Joins the rows of several data, with the columns that all have."""
    names = [name for name, _ in parts[0].items() if all(name in part for part in parts)]
    return Batch.cat([Batch({name: part[name] for name in names}) for part in parts])


def fitted(rows: Batch, spec: EnvSpec) -> Batch:
    """Returns rows as the env has them: discrete actions are numbers, and observations with parts have its layout."""
    action = rows['action']
    found = {}
    if action.ndim == 2 and action.shape[1] == 1 and not (spec.action_space.shape or ()):
        found['action'] = action[:, 0]
    dtype, _ = obs_dtype(spec.observation_space)
    for name in ('obs', 'next_obs'):
        if dtype.names and name in rows and set(rows[name].dtype.names or ()) == set(dtype.names):
            found[name] = laid_out(rows[name], dtype)
    return rows.replace(**found) if found else rows


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
