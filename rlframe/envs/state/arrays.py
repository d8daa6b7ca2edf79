"""Arrays as the bytes of their memory, in memory order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.timestep import Array


def owner_of(array: Array) -> Any:
    """Returns the owner of an array's memory: an array, another object, or ``None`` if it cannot be found."""
    owner: Any = array
    while type(owner) is np.ndarray and owner.base is not None:
        owner = owner.base
    if type(owner) is np.ndarray and not owner.flags.owndata:
        return None
    return owner


def axes_of(array: Array) -> list[int]:
    """Returns the axes of an array from the outermost in memory to the innermost."""
    return sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))


def flat_bytes(array: Array, axes: Sequence[int]) -> Array | None:
    """Returns the memory of an array that has no gaps as a view of bytes, or ``None`` if it has gaps."""
    ordered = array.transpose(axes)
    if not ordered.flags.c_contiguous:
        return None
    if not array.nbytes:
        return np.zeros(0, np.uint8)
    return ordered.reshape(-1).view(np.uint8)


def new_array(shape: Sequence[int], dtype: np.dtype[Any], axes: Sequence[int]) -> Array:
    """Returns an array that owns its memory, with its axes in this memory order."""
    if sorted(axes) != list(range(len(shape))):
        raise ValueError(f'{axes} are not the axes of {shape}')
    ordered = np.empty([shape[axis] for axis in axes], dtype)
    return np.empty_like(ordered.transpose(np.argsort(axes)), order='K') if axes else ordered


def same_layout(one: Array, other: Array) -> bool:
    """Whether two arrays have the same type, shape and memory layout."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return all(a == b for a, b, n in zip(one.strides, other.strides, one.shape, strict=True) if n > 1)


def fits(nbytes: int, offset: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether a view stays within memory of this size."""
    if 0 in shape:
        return True
    ends = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    low = offset + sum(end for end in ends if end < 0)
    return low >= 0 and offset + sum(end for end in ends if end > 0) + itemsize <= nbytes


def digest(array: Array) -> str:
    """Returns a hash of an array's type, shape and content."""
    what = f'{array.dtype.str}{array.shape}'.encode()
    return hashlib.blake2b(what + array.tobytes(), digest_size=16).hexdigest()


class Memory:
    """Bytes of many arrays, one after the other."""

    def __init__(self) -> None:
        self._parts: list[Array] = []
        self._size = 0

    def add(self, content: Array) -> int:
        """Adds bytes and returns their offset."""
        start = self._size
        self._parts.append(content.copy())
        self._size += len(content)
        return start

    def whole(self) -> Array:
        """Returns all bytes."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.uint8)
