"""Structured arrays: columns of different types and shapes that travel as one array with one leading axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def struct_dtype(fields: Mapping[str, tuple[Any, tuple[int, ...]]]) -> np.dtype[Any]:
    """Returns a dtype for rows with these fields, laid out so that each field can be wrapped as a tensor.

    Args:
        fields: Names to the type and the shape of a field in one row.
    """
    return np.dtype({'names': list(fields), 'formats': list(fields.values())}, align=True)


def leaves(array: Array, path: str = '') -> Iterator[tuple[str, Array]]:
    """Yields each plain array in a structured one, however nested, with its path; a plain array yields itself.

    Args:
        array: The array.
        path: Name of the array; the field ``camera`` of ``obs`` is ``obs['camera']``.
    """
    if array.dtype.names is None:
        yield path, array
        return
    for name in array.dtype.names:
        yield from leaves(array[name], field_path(path, name))


def field_path(path: str, name: str) -> str:
    """Formats a field for an error: ``obs['camera']``, or ``obs[1]`` if it is part of a tuple."""
    return f'{path}[{name if name.isdigit() else repr(name)}]'
