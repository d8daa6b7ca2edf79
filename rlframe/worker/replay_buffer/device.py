"""Columns on a device: the rows of a ring as tensors, which an update reads without a copy."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data import Array, Batch, IntArray
from rlframe.data.staging import Staging, tensor_type
from rlframe.run.machine import demand_memory
from rlframe.utils.field import option
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')

DEVICE_KEY = 'policy.other.replay_buffer.device'

CHUNK_BYTES = 16 * 2**20
"""Largest part of a column that is copied between main memory and a device at a time."""


def _check_device(name: str) -> str:
    return '' if re.fullmatch(r'cpu|cuda(:\d+)?', name) else "'cpu', 'cuda' or 'cuda:0', 'cuda:1', ..."


DEVICE = option(
    'cpu',
    doc="Where columns are kept: 'cpu' (main memory), or the GPU of the policy, 'cuda' or 'cuda:i', which then need not copy"
    ' batches',
    check=_check_device,
    may_change=True,
)
"""The option ``device`` of replay buffers."""


class DeviceColumn:
    """A column on a device that is written and read like an array of numpy, and whose rows can stay on the device.

    Args:
        shape: Slots and the shape of a row.
        dtype: Type of the numbers, or a structured type; then each field is a tensor.
        staging: Copies rows to the device.

    Raises:
        TypeError, ValueError: If there are no tensors of that type.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], staging: Staging) -> None:
        self.shape, self.dtype, self._staging = shape, dtype, staging
        self._fields = {
            name: DeviceColumn((*shape, *field[0].shape), field[0].base, staging)
            for name, field in (dtype.fields or {}).items()
        }
        if not self._fields:
            self._rows = torch.empty(shape, dtype=tensor_type(dtype), device=staging.device)
            # a view whose rows torch can select: it cannot those of wide unsigned integers
            signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
            self._bits = self._rows.view(signed.get(self._rows.dtype, self._rows.dtype))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of an array of this shape and type."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def _step(self) -> int:
        """Number of rows that are copied at a time."""
        return max(CHUNK_BYTES // max(self.nbytes // len(self), 1), 1)

    def __setitem__(self, slots: slice, rows: Array) -> None:
        """Copies rows into consecutive slots."""
        for name, field in self._fields.items():
            field[slots] = rows[name]
        if self._fields:
            return
        start, stop, _ = slots.indices(len(self))
        for first in range(start, stop, self._step):
            last = min(first + self._step, stop)
            self._staging.copy(rows[first - start : last - start], self._rows[first:last])

    def __getitem__(self, slots: slice) -> Array:
        """Returns the rows in consecutive slots as an array; one of the CPU may share its memory."""
        if not self._fields:
            return self._rows[slots].cpu().numpy()
        found = {name: field[slots] for name, field in self._fields.items()}
        return self._structured(len(range(*slots.indices(len(self)))), found)

    def take(self, slot: IntArray, axis: int = 0) -> Array:
        """Returns a copy of the rows at these slots, int64 [n], as an array; ``axis`` is the leading one."""
        if self._fields:
            found = {name: field.take(slot, axis) for name, field in self._fields.items()}
            return self._structured(len(slot), found)
        rows = np.empty((len(slot), *self.shape[1:]), self.dtype)
        for first in range(0, len(slot), self._step):
            part = slice(first, first + self._step)
            rows[part] = self.rows(self._staging(slot[part])).cpu().numpy()
        return rows

    def rows(self, index: torch.Tensor) -> Any:
        """Returns the rows at these slots, int64 [n] on the device, copied there: a tensor, or a ``Batch`` of the fields."""
        if self._fields:
            found = {name: field.rows(index) for name, field in self._fields.items()}
            return Batch.unchecked(found, len(index))
        return self._bits.index_select(0, index).view(self._rows.dtype)

    def _structured(self, count: int, fields: dict[str, Array]) -> Array:
        rows = np.zeros((count, *self.shape[1:]), self.dtype)
        for name, field in fields.items():
            rows[name] = field
        return rows


class FrameCopy:
    """A copy on a device of the frames of a pool, which main memory keeps, too: there they are compared and saved."""

    def __init__(self, device: torch.device) -> None:
        self._staging = Staging(device)
        self._frames: torch.Tensor | None = None

    def update(self, frames: Array, new: int, first: int, stop: int) -> None:
        """Copies the frames from number ``new`` on; the pool has those from ``first`` to before ``stop``.

        ``frames`` are the slots of the pool, uint8 [S, bytes]; frame ``number`` is in slot ``number % S``.

        Raises:
            ResourceError: If the frames do not fit into the memory of the device.
        """
        size = len(frames)
        if self._frames is None or len(self._frames) != size:
            self._frames = None  # before room for more is asked for
            check_memory(frames.nbytes, 'replay_buffer_size', self._staging.device)
            self._frames = torch.empty(frames.shape, dtype=torch.uint8, device=self._staging.device)
            new = first
        step = max(CHUNK_BYTES // frames.shape[1], 1)
        while new < stop:
            slot = new % size
            count = min(stop - new, size - slot, step)
            self._staging.copy(frames[slot : slot + count], self._frames[slot : slot + count])
            new += count

    def gather(self, number: IntArray) -> torch.Tensor:
        """Returns copies of frames [n] on the device, uint8 [n, bytes]."""
        assert self._frames is not None
        return self._frames.index_select(0, self._staging(number % len(self._frames)))


def check_memory(nbytes: int, where: str, device: torch.device | None = None) -> None:
    """Refuses an allocation that does not fit on a device, or into main memory.

    Raises:
        ResourceError: If more bytes are wanted than are free; both are given in GiB.
    """
    other = 'smaller observations' if device is None else f"{DEVICE_KEY}='cpu'"
    remedy = f'Take a smaller replay_buffer_size, or {other}.'
    demand_memory(nbytes, 'the replay buffer', where, remedy, device)
