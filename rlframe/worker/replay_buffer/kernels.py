"""Compiled loops over frames, and how loops are compiled here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

F = TypeVar('F', bound=Callable[..., Any])
kernel = cast(Callable[[F], F], numba.njit(cache=True, error_model='numpy', nogil=True))

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio. Source: Knuth, The Art of Computer Programming, volume 3, section 6.4."""


@kernel
def place_of(frame: Any, weight: Any, table: Any) -> Any:
    """Returns the place of a frame in the table of frames: a weighted sum of its bytes, spread over the table."""
    total = np.uint64(0)
    for i in range(len(frame)):
        total += np.uint64(frame[i]) * weight[i]
    return ((total * SPREAD) >> np.uint64(32)) & np.uint64(len(table) - 1)


@kernel
def is_equal(a: Any, b: Any) -> Any:
    """Whether two frames have the same bytes."""
    difference = np.uint8(0)
    for i in range(len(a)):
        difference |= a[i] ^ b[i]
    return difference == 0


@kernel
def keep(
    stacks: Any, number: Any, frames: Any, table: Any, weight: Any, stop: Any, window: Any, needed: Any
) -> Any:
    """Writes the frames of stacks that are not among the last ``window`` frames yet, and numbers all of them.

    Args:
        stacks: uint8 [M, K, F].
        number: Receives the numbers of the frames, int64 [M, K].
        frames: Frame ``i`` is in slot ``i % P``, uint8 [P, F].
        table: Numbers of the newest frames at each place, -1 where there are fewer, int64 [a power of 2, 4].
        weight: Random weights of the bytes of a frame, uint64 [F], below 2**32.
        stop: Number of the next new frame.
        window: Frames that a stack may share.
        needed: Number of the oldest frame that must not be overwritten.

    Returns:
        How many stacks were written before the slots were full, and the number of the next new frame.
    """
    size = len(frames)
    for row in range(len(stacks)):
        if stop + stacks.shape[1] - needed > size:
            return row, stop
        for k in range(stacks.shape[1]):
            bucket = table[place_of(stacks[row, k], weight, table)]
            known = -1
            for i in range(len(bucket)):
                recent = bucket[i] >= 0 and bucket[i] >= stop - window
                if recent and is_equal(frames[bucket[i] % size], stacks[row, k]):
                    known = bucket[i]
            if known < 0:
                known = stop
                frames[known % size] = stacks[row, k]
                bucket[bucket.argmin()] = known
                stop += 1
            number[row, k] = known
    return len(stacks), stop


@kernel
def find(frames: Any, table: Any, weight: Any, first: Any, stop: Any) -> None:
    """Enters the frames between two numbers in an empty table."""
    for i in range(first, stop):
        bucket = table[place_of(frames[i % len(frames)], weight, table)]
        bucket[bucket.argmin()] = i
