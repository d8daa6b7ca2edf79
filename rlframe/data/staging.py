"""Staging: copies of columns from main memory to a device that do not wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlframe.data.timestep import Array, Batch
from rlframe.errors import DeviceError
from rlframe.utils.arithmetic import ALIGNMENT, aligned
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


LEAST = 2
"""Buffers that arrays of one kind take turns in, at least."""
MOST = 8
"""And at most: columns of one kind in a batch, such as rewards and importance weights, share them."""


class Event(Protocol):
    """A mark behind the copies that were begun before it was recorded."""

    def record(self) -> None:
        """Sets the mark."""

    def query(self) -> bool:
        """Whether all copies before the mark are finished."""

    def synchronize(self) -> None:
        """Waits for them."""


class CudaEvent:
    """An event of the stream in which copies to a device are made.

    Args:
        device: A CUDA device; it need not be the current one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._event = device, torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's stub
        self.query: Callable[[], bool] = self._event.query
        self.synchronize: Callable[[], None] = self._event.synchronize

    def record(self) -> None:
        """Sets the mark."""
        self._event.record(torch.cuda.current_stream(self._device))


class _Buffer:
    """Host memory that a copy is made from.

    Args:
        like: A tensor of the type and the row shape.
        rows: Its rows.
        pin: Whether it is pinned.
        event: Tells when its last copy is finished.
    """

    def __init__(self, like: torch.Tensor, rows: int, pin: bool, event: Event) -> None:
        self.tensor = torch.empty((rows, *like.shape[1:]), dtype=like.dtype, pin_memory=pin)
        self.array: Array = self.tensor.numpy()
        self.event = event


class Staging:
    """Copies columns to a device through pinned memory, without waiting for the copies.

    An array is written into a pinned buffer, and the device copies it from there while the program goes on. Arrays of one
    type and row shape take turns in the same buffers. No buffer is written to before its last copy is finished: if the
    next one is still in use, another one is added, and from ``MOST`` on it waits. A buffer grows with the arrays.

    It is for one thread at a time, and copies belong to the current stream of the device.

    Args:
        device: Where columns go.
        pin: Whether buffers are pinned, which needs CUDA.
        event: Creates an event; by default one of CUDA.
    """

    def __init__(
        self, device: torch.device, *, pin: bool = True, event: Callable[[], Event] | None = None
    ) -> None:
        self.device = device
        """Where columns go."""
        self._pin, self._event = pin, event or (lambda: CudaEvent(device))
        self._turns: dict[tuple[np.dtype[Any], tuple[int, ...]], deque[_Buffer]] = {}

    @classmethod
    def onto(cls, device: torch.device) -> Staging:
        """Returns one for a device of any kind; on the CPU, copies are finished at once."""
        return cls(device) if device.type == 'cuda' else cls(device, pin=False, event=FinishedEvent)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).onto, (self.device,)  # a copy of a policy gets buffers of its own

    def __call__(self, column: Any) -> Any:
        """Returns a column as a tensor on the device, or as a dict of tensors if it has fields.

        Args:
            column: Array, tensor or ``Batch`` with a leading axis. A tensor on the device is not copied, unless its memory
                is not aligned like torch's own.
        """
        if isinstance(column, Batch):
            return {name: self(part) for name, part in column.items()}
        if not isinstance(column, np.ndarray) or column.ndim == 0:
            tensor = torch.as_tensor(column).to(self.device, non_blocking=True)
            return aligned(tensor) if tensor.data_ptr() % ALIGNMENT else tensor
        if column.dtype.names is not None:
            return {name: self(column[name]) for name in column.dtype.names}
        target = torch.empty(column.shape, dtype=tensor_type(column.dtype), device=self.device)
        self.copy(column, target)
        return target

    def copy(self, array: Array, target: torch.Tensor) -> None:
        """Copies an array into a tensor on the device of the same type and shape.

        Args:
            array: Numbers [n, ...], in any memory layout.
            target: Receives them; it may be a part of a larger tensor.
        """
        buffer = self._free_buffer(array, target)
        np.copyto(buffer.array[: len(array)], array, 'no')
        target.copy_(buffer.tensor[: len(array)], non_blocking=True)
        buffer.event.record()

    def _free_buffer(self, array: Array, like: torch.Tensor) -> _Buffer:
        """Returns the buffer whose turn it is, with room for an array."""
        turns = self._turns.setdefault((array.dtype, array.shape[1:]), deque())
        if len(turns) < LEAST or (len(turns) < MOST and not turns[0].event.query()):
            buffer = _Buffer(like, len(array), self._pin, self._event())
        else:
            buffer = turns.popleft()
            buffer.event.synchronize()
            if len(buffer.array) < len(array):
                buffer = _Buffer(like, len(array), self._pin, buffer.event)
        turns.append(buffer)
        return buffer


class FinishedEvent:
    """The event of copies that are finished at once."""

    def record(self) -> None:
        """Sets the mark."""

    def query(self) -> bool:
        """Whether all copies before the mark are finished."""
        return True

    def synchronize(self) -> None:
        """Waits for them."""


def tensor_type(dtype: np.dtype[Any]) -> torch.dtype:
    """Returns the type of tensors that hold the numbers of an array.

    Raises:
        TypeError: If there is none.
    """
    return torch.from_numpy(np.empty(0, dtype)).dtype
