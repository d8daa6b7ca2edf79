"""Devices by the names that options give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.errors import DeviceError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def existing_device(name: str, where: str, remedy: str) -> torch.device:
    """Returns the device of a name: 'cpu', 'cuda' or 'cuda:i'.

    Args:
        name: The name.
        where: The option that it is the value of.
        remedy: What to do if there is no such device.

    Raises:
        DeviceError: If this machine does not have it.
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
