"""Storage of a buffer's items, as columns in preallocated arrays or as arbitrary objects, and the samplers that draw from it.

Rows are numbered in the order of arrival, without wrapping. Row ``r`` is in slot ``r % capacity``, so a row number
identifies an item even after its slot is overwritten, and its age (0 is the oldest) is ``r - first``.
"""

from __future__ import annotations

import copy
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlframe.data import Array, Batch, BoolArray, FloatArray, IntArray
from rlframe.data.staging import Staging
from rlframe.data.timestep import to_array, to_tree
from rlframe.errors import CheckpointMismatchError, CheckpointStateError
from rlframe.registry import nearest
from rlframe.run.checkpoint_tree import Rows
from rlframe.utils.schema import COLUMN, COUNT, DICT, check_state, dict_of, part_of
from rlframe.worker.replay_buffer.device import DeviceColumn, check_memory

if TYPE_CHECKING:
    import torch

ADDED = frozenset({'replay_unique_id', 'replay_buffer_idx', 'priority', 'IS', 'use', 'staleness'})
"""Columns that a sample by priority has in addition to the pushed ones; pushed columns of these names are not stored."""
Columns = dict[str, Any]
"""Names to arrays, or to columns of a device, which are used as arrays; for a nested ``Batch``, to more ``Columns``."""
IN_MAIN_MEMORY = ('collect_iter',)
"""Columns that the buffer itself reads when it samples; asking a device for them would be to wait for it."""


def to_numpy(column: Any) -> Any:
    """Returns a column as numpy, a mapping of columns as a ``Batch``; copies only from a device."""
    if type(column) is np.ndarray:
        return column
    if isinstance(column, Batch) and set(map(type, column.columns.values())) <= {np.ndarray}:
        return column
    if isinstance(column, Batch | Mapping):
        return Batch({name: to_numpy(value) for name, value in column.items()})
    return to_array(column)


def is_number_type(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a type hold numbers or bools, or are structured and all their fields do."""
    if dtype.fields:
        return all(is_number_type(field[0].base) for field in dtype.fields.values())
    return dtype.kind in 'biufc'


def is_numeric(value: Any) -> bool:
    """Whether a value can be a row of a column: a number, array or tensor, or a mapping of such."""
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(name, str) and is_numeric(v) for name, v in value.items())
    if isinstance(value, np.ndarray | np.generic):
        return is_number_type(value.dtype)
    return isinstance(value, numbers.Number) or hasattr(value, 'detach')


def to_items(data: Any) -> Batch | list[Any]:
    """Returns a ``Batch`` as it is, a list as a list, and anything else as a list of one."""
    if isinstance(data, Batch):
        return data
    return list(data) if isinstance(data, list | tuple) else [data]


def stack_items(items: Sequence[Mapping[str, Any]]) -> Batch:
    """Stacks mappings of numbers to columns.

    Raises:
        ValueError: If the names or the shapes differ; the row and the column are named.
    """
    try:
        return Batch.from_rows(items)
    except (ValueError, RuntimeError):
        for i, item in enumerate(items):
            for name, first in items[0].items():
                if name in item and np.shape(item[name]) != np.shape(first):
                    raise ValueError(
                        f'column {name!r} has the shape {list(np.shape(item[name]))} in row {i} and'
                        f' {list(np.shape(first))} in row 0; pad it, or push objects that are no mappings'
                    ) from None
        raise


def split_priority(rows: Batch) -> tuple[Batch, FloatArray | None]:
    """Parts pushed priorities, float64 [n], None if there are none, from the rest, without the columns that a sample adds."""
    if ADDED.isdisjoint(rows.keys()):
        return rows, None
    block = Batch({name: column for name, column in rows.items() if name not in ADDED})
    return block, vector(rows['priority'], np.float64) if 'priority' in rows else None


def read_priorities(info: Mapping[str, Any]) -> tuple[IntArray, IntArray, FloatArray] | None:
    """Returns row numbers, slots and priorities, each [n], of an update, or ``None`` if no priority is reported.

    Unique ids may be texts as in DI-engine, such as ``'buffer_12'``.

    Raises:
        ValueError: If the three differ in length, or a text is no unique id.
    """
    if 'priority' not in info or info['priority'] is None:
        return None
    row = vector(_row_numbers(info['replay_unique_id']), np.int64)
    slot = vector(info['replay_buffer_idx'], np.int64)
    priority = vector(info['priority'], np.float64)
    if not len(row) == len(slot) == len(priority):
        raise ValueError(
            f'update got {len(row)} replay_unique_id, {len(slot)} replay_buffer_idx and {len(priority)} priority'
        )
    return row, slot, priority


def _row_numbers(unique_ids: Any) -> Any:
    """Returns unique ids as numbers: a text of DI-engine ends with the number of its row."""
    if not isinstance(unique_ids, list | tuple) or not any(isinstance(each, str) for each in unique_ids):
        return unique_ids
    rows = [str(unique_id).rpartition('_')[2] for unique_id in unique_ids]
    for unique_id, number in zip(unique_ids, rows, strict=True):
        if not number.isdecimal():
            raise ValueError(f"replay_unique_id is a number or a text such as 'buffer_12', got {unique_id!r}")
    return [int(number) for number in rows]


def vector(values: Any, dtype: type[np.generic]) -> Array:
    """Returns numbers as a flat array, copied if a kernel would get a read-only or strided one."""
    values = to_numpy(values)
    # carray: aligned, writeable, contiguous
    if values.dtype == dtype and values.ndim == 1 and values.flags.carray:
        same: Array = values
        return same
    return np.array(values, dtype).reshape(-1)


def done_of(rows: Batch) -> BoolArray:
    """Returns the episode ends, bool [n], from the columns ``terminated`` and ``truncated``, or ``done``.

    Raises:
        ValueError: If these columns are missing, or rows are not single steps.
    """
    names = [name for name in ('terminated', 'truncated', 'done') if name in rows]
    if not names:
        raise ValueError(
            f'no column says where episodes end: terminated and truncated, or done. Columns: {list(rows.keys())}'
        )
    columns: list[Array] = [np.asarray(rows[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1:
            raise ValueError(
                f'rows must be single env steps; column {name!r} has the shape {list(column.shape[1:])} a row'
            )
    done: BoolArray = np.logical_or.reduce(columns).astype(bool)
    return done


class Storage(Protocol):
    """A sampler's view of a storage: some items ordered by age, 0 the oldest."""

    def __len__(self) -> int:
        """Returns the number of items."""

    def slots(self, age: IntArray) -> IntArray:
        """Returns the slots of the items of these ages."""


class StorageRange:
    """The items of a storage in a slice of ages, counted within it: ``slice(-1000, None)`` is the newest thousand."""

    def __init__(self, storage: Storage, age: slice) -> None:
        self._storage = storage
        self._age = range(*age.indices(len(storage)))

    def __len__(self) -> int:
        return len(self._age)

    def slots(self, age: IntArray) -> IntArray:
        """Returns the slots of the items of these ages."""
        return self._storage.slots(self._age.start + age * self._age.step)


class Sampler(ABC):
    """Draws items by age; the buffer checks beforehand that it is not empty.

    What draws depend on is the buffer's own random generator, which is saved with the buffer.
    """

    @abstractmethod
    def sample(self, size: int, storage: Storage) -> IntArray:
        """Draws one batch.

        Args:
            size: Number of items, >= 1; at most ``len(storage)``, unless the user allowed repetition.
            storage: Storage to sample from; with a ``sample_range``, only the items in that range.

        Returns:
            Ages in [0, len(storage)), int [size].
        """

    def sample_with_replacement(self, size: int, storage: Storage) -> IntArray:
        """Draws one batch in which items may recur, int [size]."""
        return self.sample(size, storage)

    def sample_batches(self, count: int, size: int, storage: Storage) -> IntArray:
        """Draws several batches from one state of the storage, int [count, size]."""
        return np.stack([self.sample(size, storage) for _ in range(count)])


class UniformSampler(Sampler):
    """Every set of ``size`` distinct items is equally likely."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def sample(self, size: int, storage: Storage) -> IntArray:
        age: IntArray = self.sample_batches(1, size, storage)[0]
        return age

    def sample_with_replacement(self, size: int, storage: Storage) -> IntArray:
        return self._rng.integers(0, len(storage), size)

    def sample_batches(self, count: int, size: int, storage: Storage) -> IntArray:
        population = len(storage)
        if size * size > population:
            rows = [self._rng.choice(population, size, replace=False, shuffle=False) for _ in range(count)]
            return np.stack(rows)
        # A batch repeats an item with a probability below 0.4: drawing it again is less than a permutation.
        age = self._rng.integers(0, population, (count, size))
        bad = _has_repeat(age)
        while bad.size:
            age[bad] = self._rng.integers(0, population, (bad.size, size))
            bad = bad[_has_repeat(age[bad])]
        return age


def _has_repeat(age: IntArray) -> IntArray:
    """Returns which rows contain a number twice."""
    ordered = age.copy()
    ordered.sort(axis=1)
    is_same = ordered[:, 1:] == ordered[:, :-1]
    return np.flatnonzero(is_same.any(axis=1)) if is_same.any() else np.empty(0, np.int64)


class Ring:
    """Row numbers of a ring of slots: which rows are present, and in which slots."""

    kind = ''
    """Description of the content, for error messages."""
    saved_as = ''
    """Name of the class that reads its state."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first = 0
        """Row number of the oldest item."""
        self.stop = 0
        """Row number that the next item gets."""

    def __len__(self) -> int:
        return self.stop - self.first

    def slots(self, age: IntArray) -> IntArray:
        """Returns the slots of the items of these ages."""
        return (age + self.first) % self.capacity

    def window(self, age: slice = slice(None)) -> IntArray:
        """Returns the slots of the items in a slice of ages."""
        return self.slots(np.arange(*age.indices(len(self))))

    def advance(self, count: int) -> int:
        """Numbers new rows, and returns the number of oldest rows that they overwrite."""
        before = self.first
        self.stop = self.stop + count
        self.first = max(before, self.stop - self.capacity)
        return self.first - before

    def _restore(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'capacity': COUNT, 'first': COUNT, 'stop': COUNT})
        if state['capacity'] != self.capacity:
            raise CheckpointMismatchError(
                'the replay buffer has another size',
                where='replay_buffer_size',
                got=self.capacity,
                expected=f'{state["capacity"]}, as when it was saved',
            )
        self.first = self.stop = int(state['first'])

    def _check_restored(self, state: Mapping[str, Any]) -> None:
        if (self.first, self.stop) != (state['first'], state['stop']):
            rows = f'rows {state["first"]} to {state["stop"]}'
            raise CheckpointStateError(
                f'the state should have {rows} of a replay buffer, but has {len(self)} rows'
            )


class RingStorage(Ring):
    """Columns of arrays, allocated for the whole capacity by the first block.

    On a device, rows that were sampled are tensors on it, and an observation with fields is a nested ``Batch`` of them;
    columns ``IN_MAIN_MEMORY`` stay arrays. Copies to the device are not waited for. States are the same everywhere.
    """

    kind = 'columns (a Batch, or mappings of arrays and numbers)'
    saved_as = 'RingStorage'

    def __init__(self, capacity: int, device: torch.device | None = None) -> None:
        super().__init__(capacity)
        self._staging = None if device is None else Staging(device)
        self._columns: Columns = {}
        self._row_nbytes = 0
        self._segments: dict[str, str] = {}  # files of checkpoints that hold rows of this ring

    def push(self, block: Batch) -> None:
        """Copies the last ``capacity`` rows of a block, with at most two slice assignments a column.

        Raises:
            ValueError: If a column is missing or new, or has another shape or dtype than before. Nothing is
                written.
            ResourceError: If the columns do not fit into memory; before anything is allocated.
        """
        if not self._columns:
            device = None if self._staging is None else self._staging.device
            self._row_nbytes = row_nbytes(block)
            check_memory(self.capacity * self._row_nbytes, 'replay_buffer_size', device)
            self._columns = _allocate(block, self.capacity, self._empty_column)
        pairs = pair_columns(self._columns, block)
        count = len(block)
        skip = max(count - self.capacity, 0)
        slot = (self.stop + skip) % self.capacity
        split = min(count, skip + self.capacity - slot)
        for column, rows in pairs:
            column[slot : slot + split - skip] = rows[skip:split]
            if split < count:
                column[: count - split] = rows[split:]
        self.advance(count)

    def gather(self, slot: IntArray, without: Sequence[str] = ()) -> Batch:
        """Returns a copy of the rows at these slots, on the device if there is one, without some columns."""
        if self._staging is None:
            columns = {name: self._columns[name] for name in self._columns if name not in without}
            return _gather(columns if without else self._columns, slot)
        return _gather(self._columns, slot, self._staging(np.asarray(slot, np.int64)))

    def read(self, slot: IntArray, name: str) -> Any:
        """Returns a copy of one column in the rows at these slots, [*slot.shape, ...]."""
        column = self._columns[name]
        return _gather(column, slot) if isinstance(column, dict) else column.take(slot, axis=0)

    def column(self, name: str) -> Any:
        """Returns a column itself, in the order of slots; None if there is no such column."""
        return self._columns.get(name)

    def row_min(self, name: str, slot: IntArray) -> Array | None:
        """Returns the smallest number of a column in each of these rows, ``None`` if there is no such column."""
        column = self._columns.get(name)
        if column is None or isinstance(column, dict):
            return None
        values: Array = column.take(slot, axis=0)
        return values if values.ndim == 1 else values.reshape(len(slot), -1).min(axis=1)

    def _empty_column(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Returns a column with any content."""
        if self._staging is None or name in IN_MAIN_MEMORY:
            return np.empty(shape, dtype)
        try:
            return DeviceColumn(shape, dtype, self._staging)
        except (TypeError, ValueError):
            raise ValueError(
                f'column {name!r} has the dtype {dtype}, of which there are no tensors'
            ) from None

    def drop_oldest(self, count: int) -> None:
        """Forgets the oldest items."""
        self.first += count

    def clear(self) -> None:
        """Forgets all items; the memory stays allocated."""
        self.first = self.stop

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the rows present, oldest first, and their numbers."""
        rows = to_tree(_gather(self._columns, self.window()))
        return {'capacity': self.capacity, 'first': self.first, 'stop': self.stop, 'columns': rows}

    def checkpoint_state(self) -> dict[str, Any]:
        """Returns the result of ``state_dict``, with the rows not copied but read when they are written."""
        rows = Rows(self.first, self.stop, self._row_nbytes, self._read, self._segments)
        return {'capacity': self.capacity, 'first': self.first, 'stop': self.stop, 'columns': rows}

    def _read(self, first: int, stop: int) -> Columns:
        """Returns the columns of the rows between two numbers: views, or copies if they wrap around."""
        return _cut(self._columns, first % self.capacity, stop - first)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores rows and numbers."""
        self._restore(state)
        columns = part_of(state, 'columns', dict_of(COLUMN))
        self._columns = {}
        self._segments = dict(getattr(columns, 'segments', {}))
        self.push(to_numpy(columns))
        self._check_restored(state)


class ObjectStorage(Ring):
    """Any Python objects, kept by reference."""

    kind = 'objects'
    saved_as = 'ObjectStorage'

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._items: list[Any] = []

    def push(self, block: list[Any]) -> None:
        """Keeps the last ``capacity`` objects of a list."""
        start = self.stop
        self.advance(len(block))
        self._items += [None] * (min(self.stop, self.capacity) - len(self._items))
        for row in range(max(start, self.first), self.stop):
            self._items[row % self.capacity] = block[row - start]

    def gather(self, slot: IntArray) -> list[Any]:
        """Returns the objects at these slots."""
        return [self._items[i] for i in slot.tolist()]

    def row_min(self, name: str, slot: IntArray) -> Array | None:
        """Returns the smallest number that each object has under a name, NaN if it has none."""
        items = self.gather(slot)
        known = [item[name] if isinstance(item, Mapping) and name in item else math.nan for item in items]
        return np.array([np.min(to_numpy(value)) for value in known], np.float64)

    def drop_oldest(self, count: int) -> None:
        """Forgets the oldest items."""
        for slot in self.window(slice(count)).tolist():
            self._items[slot] = None
        self.first += count

    def clear(self) -> None:
        """Forgets all items."""
        self._items = [None] * len(self._items)
        self.first = self.stop

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the objects present, oldest first, and their numbers."""
        return copy.deepcopy(self.checkpoint_state())

    def checkpoint_state(self) -> dict[str, Any]:
        """Returns the result of ``state_dict``, with the objects not copied."""
        items = {str(i): item for i, item in enumerate(self.gather(self.window()))}
        return {'capacity': self.capacity, 'first': self.first, 'stop': self.stop, 'items': items}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores objects and numbers."""
        self._restore(state)
        self._items = [None] * min(self.stop, self.capacity)
        self.push([copy.deepcopy(item) for item in part_of(state, 'items', DICT).values()])
        self._check_restored(state)


def row_nbytes(block: Batch) -> int:
    """Returns the bytes that one row occupies in a ``RingStorage``."""
    return sum(
        row_nbytes(column) if isinstance(column, Batch) else column.itemsize * math.prod(column.shape[1:])
        for _, column in block.items()
    )


def _allocate(block: Batch, capacity: int, empty: Callable[..., Any], prefix: str = '') -> Columns:
    columns: Columns = {}
    for name, column in block.items():
        if isinstance(column, Batch):
            columns[name] = _allocate(column, capacity, empty, f'{prefix}{name}.')
        elif is_number_type(column.dtype):
            columns[name] = empty(prefix + name, (capacity, *column.shape[1:]), column.dtype)
        else:
            raise ValueError(
                f'column {prefix + name!r} has the dtype {column.dtype}; columns hold numbers or bools'
            )
    return columns


def pair_columns(columns: Columns, block: Batch, prefix: str = '') -> list[tuple[Array, Array]]:
    """Returns each array of a storage with the new rows for it.

    Raises:
        ValueError: If they do not fit together.
    """
    if columns.keys() != block.columns.keys():
        new = sorted(set(block.keys()) - columns.keys())
        missing = sorted(columns.keys() - set(block.keys()))
        place = f' below {prefix[:-1]!r}' if prefix else ''
        hint = nearest(new[0], columns) if new else ''
        raise ValueError(
            f'the replay buffer holds other columns{place}; new: {new}, missing: {missing}.{hint}'
        )
    pairs: list[tuple[Array, Array]] = []
    for name, rows in block.columns.items():
        column = columns[name]
        if type(rows) is np.ndarray and not isinstance(column, dict):
            if rows.dtype != column.dtype or rows.shape[1:] != column.shape[1:]:
                raise ValueError(
                    f'column {prefix + name!r} holds {column.dtype}{list(column.shape[1:])} a row,'
                    f' got {rows.dtype}{list(rows.shape[1:])}'
                )
            pairs.append((column, rows))
        elif isinstance(column, dict) and isinstance(rows, Batch):
            pairs += pair_columns(column, rows, f'{prefix}{name}.')
        else:
            raise ValueError(
                f'column {prefix + name!r} is a nested Batch on one side and an array on the other'
            )
    return pairs


def _gather(columns: Columns, slot: IntArray, index: torch.Tensor | None = None) -> Batch:
    """Returns the rows in these slots, as arrays; columns on a device as tensors, if ``index`` has the slots as a tensor there."""
    rows: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, dict):
            rows[name] = _gather(column, slot, index)
        elif index is not None and isinstance(column, DeviceColumn):
            rows[name] = column.rows(index)
        else:
            rows[name] = column.take(slot, axis=0)
    return Batch.unchecked(rows, len(slot))


def _cut(columns: Columns, slot: int, count: int) -> Columns:
    """Returns ``count`` rows from a slot on, around the end of the ring if need be."""
    cut: Columns = {}
    for name, column in columns.items():
        if isinstance(column, dict):
            cut[name] = _cut(column, slot, count)
        elif slot + count <= len(column):
            cut[name] = column[slot : slot + count]
        else:
            cut[name] = np.concatenate(
                [column[slot:], column[: slot + count - len(column)]], dtype=column.dtype
            )
    return cut
