"""Storage of stacked images: each frame once, however many stacks it is part of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data import Array, Batch, IntArray
from rlframe.errors import CheckpointStateError, ResourceError
from rlframe.run.checkpoint_tree import Rows
from rlframe.utils.schema import COLUMN, COUNT, TEXT, dict_of, list_of, part, part_of
from rlframe.worker.replay_buffer.device import FrameCopy, check_memory
from rlframe.worker.replay_buffer.ring import RingStorage, pair_columns, row_nbytes, to_numpy

if TYPE_CHECKING:
    import torch

KEY = 'policy.other.replay_buffer.frames'
FRAMES_FILE = 'replay_frames'
"""Begins the names of the files of frames in a checkpoint."""
IMAGE_AXES = 2
"""Least number of axes of an image: height and width."""
OVERHEAD = 16
"""Rows per spare frame: beyond one frame per row, the last observations of episodes need some."""
SHARED = 64
"""A stack shares frames with stacks of the last ``capacity / SHARED`` frames."""
LEAST_SHARED = 4096
"""Fewest spare frames, in buffers with that many rows."""
PLACES, BUCKET = 4, 4
"""Places in the table of frames for each frame that may be shared, and frames at a place."""
STEP = 256
"""Rows that are written at a time, so that observations meet the next observations of the rows before."""
FRAMES = {'first': COUNT, 'stop': COUNT, 'columns': dict_of(COLUMN)}


def window_of(capacity: int) -> int:
    """Returns how many frames back a new stack shares frames."""
    return max(capacity // SHARED, min(LEAST_SHARED, capacity))


def slots_of(capacity: int) -> int:
    """Returns the number of frames in the pool of a buffer with ``capacity`` rows."""
    return capacity + capacity // OVERHEAD + window_of(capacity)


def is_stack(dtype: np.dtype[Any], shape: tuple[int, ...], frame_stack: int) -> bool:
    """Whether observations of a type and a shape are stacks of images, [K, H, W, ...]."""
    return dtype == np.uint8 and len(shape) > IMAGE_AXES and shape[0] == frame_stack


def stacked_columns(block: Batch, frame_stack: int) -> tuple[str, ...]:
    """Returns the names of the columns that are stacks of uint8 images, [M, K, H, W, ...], all of one shape."""
    arrays = {name: column for name, column in block.items() if isinstance(column, np.ndarray)}
    stacks = {
        name: array.shape[1:]
        for name, array in arrays.items()
        if is_stack(array.dtype, array.shape[1:], frame_stack)
    }
    first = next(iter(stacks.values()), ())
    return tuple(name for name, shape in stacks.items() if shape == first)


class FramePool:
    """A ring of images with permanent numbers, in which equal images that come soon after each other are one.

    Whether images are equal is decided by comparing all bytes. A table only proposes candidates; where it lacks the
    right one, an image is kept twice. So what is read is what was written, in whatever order, and the numbers depend on
    the images alone.

    Args:
        capacity: Rows of the buffer.
        stack: Images that a row may add in a column, K.
        shape: Shape of an image.
        device: Where a copy of all frames is kept, from which stacks are gathered; None: there is no copy.
    """

    def __init__(
        self, capacity: int, stack: int, shape: tuple[int, ...], device: torch.device | None = None
    ) -> None:
        self.shape, self._stack = shape, stack
        self.first = self.stop = 0
        """Numbers of the oldest frame and of the next new one."""
        self._frames = np.empty((slots_of(capacity), math.prod(shape)), np.uint8)
        self._copy = FrameCopy(device) if device is not None else None
        self._weight = np.random.default_rng(0).integers(1, 2**32, math.prod(shape), np.uint64)
        from rlframe.worker.replay_buffer import kernels  # numba takes half a second to import

        self._kernels = kernels
        self.window = window_of(capacity)
        """Number of newest frames that new stacks may share."""
        self._table = np.full((2 ** math.ceil(math.log2(PLACES * self.window)), BUCKET), -1, np.int64)

    def oldest_of(self, numbers: IntArray) -> int:
        """Returns a lower bound of the numbers of the frames of a row, with these numbers, and of all later rows."""
        return max(int(numbers.max()) + 1 - self._stack - self.window, 0)

    def forget(self, first: int) -> None:
        """Frees the slots of the frames with lower numbers, except the newest ones, which new stacks may share."""
        self.first = max(self.first, min(first, self.stop - self.window))

    def keep(self, stacks: Array) -> IntArray:
        """Keeps the frames of stacks, uint8 [M, K, ...], and returns their numbers, int64 [M, K].

        Raises:
            ResourceError: If there are more different frames than fit into memory.
        """
        flat = np.ascontiguousarray(stacks).reshape(*stacks.shape[:2], -1)
        number = np.empty(flat.shape[:2], np.int64)
        done = 0
        before = self.stop
        while done < len(flat):
            rows, self.stop = self._kernels.keep(
                flat[done:],
                number[done:],
                self._frames,
                self._table,
                self._weight,
                self.stop,
                self.window,
                self.first,
            )
            done += rows
            if done < len(flat):
                self._grow()
        if self._copy is not None:
            self._copy.update(self._frames, before, self.first, self.stop)
        return number

    def gather(self, number: IntArray) -> Array:
        """Returns copies of frames [...] as images [..., *shape]."""
        rows = self._frames.take(number.reshape(-1) % len(self._frames), axis=0)
        return rows.reshape(*number.shape, *self.shape)

    def sample(self, number: IntArray) -> Any:
        """Returns copies of frames [...] as images [..., *shape], on the device of the pool if it has one."""
        if self._copy is None:
            return self.gather(number)
        return self._copy.gather(number.reshape(-1)).view(*number.shape, *self.shape)

    def _grow(self) -> None:
        """Makes room for an eighth more frames.

        Raises:
            ResourceError: If it does not fit into memory.
        """
        size = len(self._frames) + len(self._frames) // 8 + self._stack
        try:
            check_memory(size * self._frames.shape[1], KEY)
        except ResourceError as error:
            error.remedy = f"{error.remedy} Its frames occur in few stacks: {KEY}='copied' may need less."
            raise
        frames = np.empty((size, self._frames.shape[1]), np.uint8)
        for start in range(self.first, self.stop, STEP):
            number = np.arange(start, min(start + STEP, self.stop))
            frames[number % size] = self._frames[number % len(self._frames)]
        self._frames = frames

    def restore(self, first: int, images: Array) -> None:
        """Takes over frames with consecutive numbers, in an empty pool."""
        self.first = first
        self.stop = first + len(images)
        size = max(len(self._frames), len(images) + self._stack)
        if size > len(self._frames):
            self._frames = np.empty((size, self._frames.shape[1]), np.uint8)
        self._frames[np.arange(first, self.stop) % size] = images.reshape(len(images), -1)
        if self._copy is not None:
            self._copy.update(self._frames, first, first, self.stop)
        begin = max(self.first, self.stop - self.window)
        self._kernels.find(self._frames, self._table, self._weight, begin, self.stop)


class FrameStorage(RingStorage):
    """Columns in a ring; of stacked images, only the numbers of their frames, which a pool keeps once.

    Args:
        capacity: Number of slots, >= 1.
        frame_stack: Images in a stack, along the first axis of an observation; a restored state says it by itself.
        device: Where stacks are sampled, from a copy of all frames on it; None: in main memory.
    """

    saved_as = 'FrameStorage'

    def __init__(self, capacity: int, frame_stack: int = 1, device: torch.device | None = None) -> None:
        super().__init__(capacity)
        self.frame_stack, self._device = frame_stack, device
        self._names: tuple[str, ...] = ()
        self._pool: FramePool | None = None
        self._frame_segments: dict[str, str] = {}  # files of checkpoints that hold frames of the pool

    def push(self, block: Batch) -> None:
        if self._pool is None:
            self._pool = self._make_pool(block)
        skip = max(len(block) - self.capacity, 0)
        numbered, stacks = self._numbered(block[skip:] if skip else block)
        if self._columns:
            pair_columns(self._columns, numbered)
        self.advance(skip)
        self._forget(len(numbered))
        for start in range(0, len(numbered), STEP):
            for name, images in stacks.items():
                numbered[name][start : start + STEP] = self._pool.keep(images[start : start + STEP])
        super().push(numbered)

    def _make_pool(self, block: Batch) -> FramePool:
        self._names = stacked_columns(block, self.frame_stack)
        shape = block[self._names[0]].shape[2:]
        numbers = {name: np.empty((0, self.frame_stack), np.int64) for name in self._names}
        nbytes = self.capacity * row_nbytes(block[:0].replace(**numbers))
        check_memory(nbytes + slots_of(self.capacity) * math.prod(shape), 'replay_buffer_size')
        return FramePool(self.capacity, self.frame_stack, shape, self._device)

    def _numbered(self, block: Batch) -> tuple[Batch, dict[str, Array]]:
        """Returns a block with room for the numbers of frames in place of images, and the images."""
        assert self._pool is not None
        stacks = {name: block[name] for name in self._names if name in block}
        shape = self.frame_stack, *self._pool.shape
        for name, images in stacks.items():
            if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != shape:
                got = 'a nested Batch'
                if isinstance(images, np.ndarray):
                    got = f'{images.dtype}{list(images.shape[1:])}'
                raise ValueError(f'column {name!r} holds uint8{list(shape)} a row, got {got}')
        numbers = {name: np.empty((len(block), self.frame_stack), np.int64) for name in stacks}
        return block.replace(**numbers), stacks

    def _forget(self, count: int) -> None:
        """Forgets the frames of rows that a push of ``count`` overwrites."""
        first = max(self.first, self.stop + count - self.capacity)
        assert self._pool is not None
        self._pool.forget(self._oldest_frame(first) if first < self.stop else self._pool.stop)

    def _oldest_frame(self, row: int) -> int:
        """Returns a lower bound of the numbers of all frames of a row and of later rows."""
        assert self._pool is not None
        return min(self._pool.oldest_of(self._columns[name][row % self.capacity]) for name in self._names)

    def gather(self, slot: IntArray, without: Sequence[str] = ()) -> Batch:
        """Returns a copy of the rows at these slots; their images are on the device of the pool if it has one."""
        rows = super().gather(slot, without)
        if self._pool is None:
            return rows
        return rows.replace(**{name: self._pool.sample(rows[name]) for name in self._names})

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | self._frames_state(is_copied=True)

    def checkpoint_state(self) -> dict[str, Any]:
        return super().checkpoint_state() | self._frames_state(is_copied=False)

    def _frames_state(self, is_copied: bool) -> dict[str, Any]:
        pool = self._pool
        assert pool is not None
        first = self._oldest_frame(self.first) if len(self) else pool.stop
        first = max(pool.first, min(first, pool.stop - pool.window))

        def read(first: int, stop: int) -> dict[str, Array]:
            return {'image': pool.gather(np.arange(first, stop))}

        numbered = Rows(first, pool.stop, math.prod(pool.shape), read, self._frame_segments, FRAMES_FILE)
        columns: Any = read(first, pool.stop) if is_copied else numbered
        return {
            'stacked': list(self._names),
            'frames': {'first': first, 'stop': pool.stop, 'columns': columns},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._restore(state)
        saved = part_of(state, 'columns', dict_of(COLUMN))
        self._columns = {}
        self._segments = dict(getattr(saved, 'segments', {}))
        self._names = tuple(part_of(state, 'stacked', list_of(TEXT)))
        columns = to_numpy(saved)
        with part('frames'):
            self._load_frames(part_of(state, 'frames', FRAMES), [columns[name] for name in self._names])
        super().push(columns)
        self._check_restored(state)

    def _load_frames(self, saved: Mapping[str, Any], numbers: Sequence[Array]) -> None:
        """Restores the pool, after a check that all stacks refer to saved frames."""
        images = to_numpy(saved['columns']['image'])
        first = saved['first']
        stop = saved['stop']
        shapes = {(number.dtype, number.shape[1:]) for number in numbers}
        is_known = all(not number.size or first <= number.min() <= number.max() < stop for number in numbers)
        is_column = [(dtype == np.int64, len(shape)) for dtype, shape in shapes] == [(True, 1)]
        if images.dtype != np.uint8 or len(images) != stop - first or not is_column or not is_known:
            raise CheckpointStateError(f'the state should have the frames {first} to {stop} of all stacks')
        self.frame_stack = numbers[0].shape[1]
        self._frame_segments = dict(getattr(saved['columns'], 'segments', {}))
        self._pool = FramePool(self.capacity, self.frame_stack, images.shape[1:], self._device)
        self._pool.restore(first, images)
