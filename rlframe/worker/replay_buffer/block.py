"""What users push, in the form that a storage takes: a ``Batch`` of numpy columns, or a list."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data import Batch


def to_numpy(column: Any) -> Any:
    """Returns a column as numpy, a mapping of columns as a ``Batch``; copies only from a device."""
    if type(column) is np.ndarray:
        return column
    if isinstance(column, Batch | Mapping):
        return Batch({name: to_numpy(value) for name, value in column.items()})
    return column.detach().cpu().numpy() if hasattr(column, 'detach') else np.asarray(column)


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
