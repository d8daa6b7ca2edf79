"""Columns as tensors; an observation with parts is a dict of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.utils.arithmetic import ALIGNMENT, aligned
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')

Rows = dict[str, Any]
"""What an update reads: names to tensors [B, ...], or to nested dicts of them."""


def to_tensor(column: Any) -> Any:
    """Returns a column as a tensor, or as a dict of tensors if it has fields.

    Args:
        column: Array, tensor or ``Batch`` with a leading axis. Aligned memory is shared.
    """
    if isinstance(column, np.ndarray):
        try:
            tensor = torch.from_numpy(column)
        except TypeError:
            if column.dtype.names is None:
                raise
            return {name: to_tensor(column[name]) for name in column.dtype.names}
    elif isinstance(column, Batch):
        return {name: to_tensor(part) for name, part in column.items()}
    else:
        tensor = torch.as_tensor(column)
    return aligned(tensor) if tensor.data_ptr() % ALIGNMENT else tensor  # a call less for most columns


def take(obs: Any, index: Any) -> Any:
    """Returns some rows of an observation tensor, or of a nested dict of such.

    Args:
        obs: Tensor [B, ...], or dict of such.
        index: Slice, mask or integers, as for one tensor.
    """
    if isinstance(obs, dict):
        return {name: take(part, index) for name, part in obs.items()}
    return obs[index]


def standardised(advantage: Any) -> Any:
    """Gives advantages, a tensor [B], mean 0 and standard deviation 1; a single one stays, as it would become 0."""
    if len(advantage) == 1:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)


def flat(column: Any) -> Any:
    """Maps a column [T, N, ...], an array or a tensor, to [T * N, ...]."""
    return column.reshape(-1, *column.shape[2:])
