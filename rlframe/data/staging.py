"""Staging: copies of columns from main memory to a device that do not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.timestep import Array, Batch, to_tensor
from rlframe.errors import DeviceError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def existing_device(name: str, where: str, remedy: str) -> torch.device:
    """Returns the device of a name, the value of an option: 'cpu', 'cuda' or 'cuda:i'.

    Raises:
        DeviceError: If this machine does not have it; with the given remedy.
    """
    if name.startswith('cuda'):
        is_available = torch.cuda.is_available()
        there = torch.cuda.device_count() if is_available else 0
        if int(name.partition(':')[2] or 0) >= there:
            raise DeviceError(
                f'no device {name!r}: torch {torch.__version__}, cuda.is_available()={is_available},'
                f' {there} CUDA devices',
                where=where,
                remedy=remedy,
            )
    return torch.device(name)


def numbered(device: torch.device) -> torch.device:
    """Returns a device with its number: 'cuda' is the current one."""
    if device.type == 'cuda' and device.index is None:
        return torch.device('cuda', torch.cuda.current_device())
    return device


class Staging:
    """Copies columns to a device without waiting for it: to CUDA, through pinned memory.

    torch keeps the pinned memory of a copy until the copy is finished, and then uses it for later ones.

    Args:
        device: Where columns go.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        """Where columns go."""

    def __call__(self, column: Any) -> Any:
        """Returns an array, a tensor or a ``Batch`` as a tensor on the device, or as a dict of tensors if it has fields.

        A tensor on the device is not copied, unless its memory is not aligned like torch's own.
        """
        if isinstance(column, Batch):
            return {name: self(part) for name, part in column.items()}
        if not isinstance(column, np.ndarray) or column.ndim == 0:
            return to_tensor(torch.as_tensor(column).to(self.device, non_blocking=True))
        if column.dtype.names is not None:
            return {name: self(column[name]) for name in column.dtype.names}
        return self._staged(column).to(self.device, non_blocking=True)

    def copy(self, array: Array, target: torch.Tensor) -> None:
        """Copies numbers [n, ...] into a tensor on the device, or a part of one, of the same type and shape."""
        target.copy_(self._staged(array), non_blocking=True)

    def _staged(self, array: Array) -> torch.Tensor:
        """Returns a copy of an array in main memory; for CUDA, in pinned memory."""
        is_pinned = self.device.type == 'cuda'
        staged = torch.empty(array.shape, dtype=tensor_type(array.dtype), pin_memory=is_pinned)
        np.copyto(staged.numpy(), array, 'no')
        return staged


def tensor_type(dtype: np.dtype[Any]) -> torch.dtype:
    """Returns the type of tensors that hold the numbers of an array.

    Raises:
        TypeError: If there is none.
    """
    return torch.from_numpy(np.empty(0, dtype)).dtype
