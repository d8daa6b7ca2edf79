"""FrameStack: the last frames of one env as a view of memory that is never written again."""

from __future__ import annotations

import numpy as np

from rlframe.data.timestep import Array

CHUNK = 64
"""Frames that are allocated together."""


class FrameStack:
    """Keeps the last ``count`` frames side by side, so that a stack is a view and no frame is copied.

    Stacks stay valid: frames are only ever appended, to new memory where the old is full. As in Gymnasium's
    ``FrameStackObservation``, an episode begins with copies of its first frame.

    Args:
        count: Frames of a stack.
        shape: Shape of a frame.
    """

    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        self._count, self._shape = count, shape
        self._frames = self._new()
        self._end = count

    def _new(self) -> Array:
        return np.zeros((CHUNK + self._count, *self._shape), np.uint8)

    def next_slot(self) -> Array:
        """Returns the memory of the next frame, which the caller fills before ``stack`` is called."""
        if self._end == len(self._frames):
            kept = self._frames[self._end - self._count + 1 :]
            self._frames = self._new()
            self._frames[: len(kept)] = kept
            self._end = len(kept)
        self._end += 1
        slot: Array = self._frames[self._end - 1]
        return slot

    def first_slot(self) -> Array:
        """Returns the memory of the first frame of an episode, which the caller fills before ``begin`` is called."""
        if self._end + self._count > len(self._frames):
            self._frames, self._end = self._new(), 0
        self._end += self._count
        slot: Array = self._frames[self._end - self._count]
        return slot

    def begin(self) -> Array:
        """Repeats the first frame of an episode and returns the stack."""
        stack = self.stack()
        stack[1:] = stack[0]
        return stack

    def stack(self) -> Array:
        """Returns the last frames, the newest last, uint8 [count, ...]."""
        stack: Array = self._frames[self._end - self._count : self._end]
        return stack

    def restore(self, stack: Array) -> None:
        """Continues after the given stack."""
        self._frames, self._end = self._new(), self._count
        self._frames[: self._count] = stack
