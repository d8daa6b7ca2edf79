"""Identifiable transitions: every value of row ``i`` tells ``i``, so a swapped row is a visible number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rlframe.data import Array, Batch


def transitions(start: int, count: int, **more: Any) -> Batch:
    """Returns rows ``start`` to ``start + count - 1``."""
    number = np.arange(start, start + count)
    obs = np.repeat(number[:, None], 4, axis=1).astype(np.float32)
    return Batch(
        obs=obs,
        action=number,
        reward=-number.astype(np.float32),
        done=number % 2 == 0,
        next_obs=obs + 1,
        **more,
    )


def assert_rows_intact(rows: Batch) -> None:
    """Fails if the columns of some row are of different transitions."""
    number = rows['action']
    np.testing.assert_array_equal(rows['obs'], np.repeat(number[:, None], 4, axis=1))
    np.testing.assert_array_equal(rows['reward'], -number)
    np.testing.assert_array_equal(rows['done'], number % 2 == 0)
    np.testing.assert_array_equal(rows['next_obs'], rows['obs'] + 1)


def leaves(column: Any, path: str = '') -> Iterator[tuple[str, Array]]:
    """Yields the plain arrays in a batch, a state, an array or a tensor, with their names."""
    if isinstance(column, Batch | dict):
        for name, part in column.items():
            yield from leaves(part, f'{path}.{name}')
    elif isinstance(column, np.ndarray) and column.dtype.names:
        for name in column.dtype.names:
            yield from leaves(column[name], f'{path}.{name}')
    else:
        yield path, column.numpy() if isinstance(column, torch.Tensor) else np.asarray(column)


def assert_same(one: Any, other: Any) -> None:
    """Makes sure that two batches or states are the same to the bit, arrays here and tensors there."""
    ours, theirs = dict(leaves(one)), dict(leaves(other))
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        assert (array.dtype, array.shape) == (theirs[name].dtype, theirs[name].shape), name
        assert array.tobytes() == theirs[name].tobytes(), name


def tensors(batch: Batch) -> dict[str, Any]:
    """Returns the columns of a batch that are tensors, or nested batches."""
    return {name: column for name, column in batch.items() if not isinstance(column, np.ndarray)}
