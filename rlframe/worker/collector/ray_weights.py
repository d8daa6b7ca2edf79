"""Weights as one block of bytes: put into the object store once per version, and handed on by reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')

ALIGNMENT = 64
"""Bytes; where each array begins is divisible by it."""


class Leaf(NamedTuple):
    """Where one array of a tree lies in the block."""

    path: tuple[str, ...]
    dtype: str
    """Name of a torch type, such as ``torch.float32``, or of a numpy type; empty for a value that is no array."""
    shape: tuple[int, ...]
    start: int
    value: Any = None
    """What is no array."""


class Weights(NamedTuple):
    """The state of a policy that acts."""

    version: int
    schema: tuple[Leaf, ...]
    block: Array
    """uint8; all arrays."""


def flatten(tree: Mapping[str, Any], version: int = 0, spare: Array | None = None) -> Weights:
    """Copies a tree of tensors, arrays and plain values into one block.

    Args:
        tree: What to copy.
        version: Its version.
        spare: A block that may be overwritten, used where it has the right size; of another tree of the same kind.
    """
    schema, parts, start = [], [], 0
    for path, value in _leaves(tree):
        is_tensor = hasattr(value, 'detach')
        if not is_tensor and not isinstance(value, np.ndarray):
            schema.append(Leaf(path, '', (), 0, value))
            continue
        if is_tensor:
            flat = value.detach().cpu().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
        else:
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        schema.append(Leaf(path, str(value.dtype), tuple(value.shape), start))
        parts.append((start, data))
        start += -(-data.nbytes // ALIGNMENT) * ALIGNMENT
    block = spare if spare is not None and len(spare) == start else np.zeros(start, np.uint8)
    for begin, data in parts:
        block[begin : begin + data.nbytes] = data
    return Weights(version, tuple(schema), block)


def unflatten(weights: Weights) -> dict[str, Any]:
    """Returns the tree again; its arrays share one copy of the block, which may be written to."""
    block = weights.block.copy()
    tree: dict[str, Any] = {}
    for leaf in weights.schema:
        section: dict[str, Any] = tree
        for name in leaf.path[:-1]:
            section = section.setdefault(name, {})
        section[leaf.path[-1]] = _array(leaf, block) if leaf.dtype else leaf.value
    return tree


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _array(leaf: Leaf, block: Array) -> Any:
    is_tensor = leaf.dtype.startswith('torch.')
    dtype: Any = getattr(torch, leaf.dtype.removeprefix('torch.')) if is_tensor else np.dtype(leaf.dtype)
    size = int(np.prod(leaf.shape, dtype=np.int64)) * dtype.itemsize
    data = block[leaf.start : leaf.start + size]
    if not is_tensor:
        return data.view(dtype).reshape(leaf.shape)
    return (
        torch.from_numpy(data).view(dtype).reshape(leaf.shape)
        if size
        else torch.zeros(leaf.shape, dtype=dtype)
    )
