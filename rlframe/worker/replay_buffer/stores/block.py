"""Converts the items that users push, and the priorities that a learner reports, to numpy columns."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data import Array, Batch, FloatArray, IntArray
from rlframe.data.batch import to_array


def to_numpy(column: Any) -> Any:
    """Returns a column as numpy, a mapping of columns as a ``Batch``; copies only from a device."""
    if type(column) is np.ndarray:
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


def read_priorities(info: Mapping[str, Any]) -> tuple[IntArray, IntArray, FloatArray] | None:
    """Returns row numbers, slots and priorities, each [n], or ``None`` if no priority is reported.

    Args:
        info: ``replay_unique_id`` and ``replay_buffer_idx`` as sampled, and ``priority``. Unique ids may be texts as
            in DI-engine, such as ``'buffer_12'``.

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
