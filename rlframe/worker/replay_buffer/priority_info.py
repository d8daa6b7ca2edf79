"""What a learner reports of the items that it was given: their new priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data import Array, FloatArray, IntArray
from rlframe.worker.replay_buffer.block import to_numpy


def read_priorities(info: Mapping[str, Any]) -> tuple[IntArray, IntArray, FloatArray] | None:
    """Returns row numbers, slots and priorities, each [n], or ``None`` where no priority is reported.

    Args:
        info: ``replay_unique_id`` and ``replay_buffer_idx`` as sampled, and ``priority``.

    Raises:
        ValueError: If the three differ in length.
    """
    if 'priority' not in info or info['priority'] is None:
        return None
    row = vector(info['replay_unique_id'], np.int64)
    slot = vector(info['replay_buffer_idx'], np.int64)
    priority = vector(info['priority'], np.float64)
    if not len(row) == len(slot) == len(priority):
        raise ValueError(
            f'update got {len(row)} replay_unique_id, {len(slot)} replay_buffer_idx and {len(priority)} priority'
        )
    return row, slot, priority


def vector(values: Any, dtype: type[np.generic]) -> Array:
    """Returns numbers as a flat array, a new one where a kernel would meet a read-only or strided one."""
    values = to_numpy(values)
    if values.dtype == dtype and values.ndim == 1 and values.flags.c_contiguous and values.flags.writeable:
        same: Array = values
        return same
    return np.array(values, dtype).reshape(-1)
