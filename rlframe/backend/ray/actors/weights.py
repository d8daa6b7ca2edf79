"""Transfers weights to actors without copies: the object store reads their memory, and actors read the object store."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')

CHUNK = 2**16
"""Number of bytes that are compared at a time."""


class TensorBytes(NamedTuple):
    """A tensor in a form that Ray transfers without a copy; a numpy array has no bfloat16."""

    dtype: str
    """Name of a torch type, such as ``float32``."""
    shape: tuple[int, ...]
    data: Array
    """uint8 [bytes]."""


def on_cpu(module: Any) -> Any:
    """Returns a module that any process can receive: a copy on the CPU if it is elsewhere; other objects unchanged."""
    if not hasattr(module, 'parameters') or all(p.device.type == 'cpu' for p in module.parameters()):
        return module
    return copy.deepcopy(module).cpu()


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a tree with each tensor as its bytes, without a copy if the tensor is on the CPU.

    Args:
        tree: Tensors, arrays and plain values under names; may be nested.
    """
    return {name: _flat(value) for name, value in tree.items()}


def unflatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree that ``flatten`` was given.

    Its tensors are views, and those from the object store are read-only: the caller must copy them, as
    ``load_state_dict`` of a module does. Arrays are copies.
    """
    return {name: _unflat(value) for name, value in tree.items()}


def is_same(one: Any, other: Any) -> bool:
    """Whether two results of ``flatten`` are equal bit by bit; if not, comparing the beginning usually suffices."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, TensorBytes):
        return one[:2] == other[:2] and _same_bytes(one.data, other.data)
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and one.tobytes() == other.tobytes()
    return bool(one == other)


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return flatten(value)
    if not hasattr(value, 'detach'):
        return value
    flat = value.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
    return TensorBytes(str(value.dtype).removeprefix('torch.'), tuple(value.shape), data)


def _unflat(value: Any) -> Any:
    if isinstance(value, Mapping):
        return unflatten(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, TensorBytes):
        return value
    dtype = getattr(torch, value.dtype)
    if not value.data.size:
        return torch.zeros(value.shape, dtype=dtype)
    try:
        flat = torch.from_dlpack(value.data)
    except BufferError:  # numpy before 2.1 exports no read-only arrays
        flat = torch.from_numpy(value.data.copy())
    return flat.view(dtype).reshape(value.shape)


def _same_bytes(one: Array, other: Array) -> bool:
    starts = range(0, len(one), CHUNK)
    return all(np.array_equal(one[start : start + CHUNK], other[start : start + CHUNK]) for start in starts)
