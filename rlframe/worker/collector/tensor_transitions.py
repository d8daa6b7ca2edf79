"""Converts collected transitions to tensors, for custom update loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.batch import Batch


def to_tensor_transitions(
    data: Batch | Sequence[Mapping[str, Any]], shallow_copy_next_obs: bool = True
) -> Batch | list[dict[str, Any]]:
    """Turns numpy transitions into tensors; float64 becomes float32.

    A ``Batch`` becomes a ``Batch`` of tensors that shares memory where it can. A list of dicts, which must be one
    trajectory in order, becomes a list of new dicts.

    Args:
        data: The transitions.
        shallow_copy_next_obs: For a list: ``next_obs`` of each row is the very tensor ``obs`` of the following one, so
            that each observation is kept once; only the last row has its own.
    """
    import torch

    def tensor(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = torch.as_tensor(value)
        return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float64 else value

    if isinstance(data, Batch):
        return data.map(tensor)
    rows = [{name: tensor(value) for name, value in row.items() if name != 'next_obs'} for row in data]
    for i, row in enumerate(data):
        if 'next_obs' in row:
            shared = shallow_copy_next_obs and i + 1 < len(rows)
            rows[i]['next_obs'] = rows[i + 1]['obs'] if shared else tensor(row['next_obs'])
    return rows
