"""The loop of ``RandomShift``, apart because numba takes half a second to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from rlframe.data.timestep import Array, IntArray

F = TypeVar('F', bound=Callable[..., Any])
kernel = cast(Callable[[F], F], numba.njit(cache=True, error_model='numpy', nogil=True))


@kernel
def move(images: Array, shift: IntArray, moved: Array) -> None:
    """Moves images [B, L, H, W, C] by ``shift`` [2, B] into ``moved``, with their edges repeated."""
    count, layers, height, width, depth = images.shape
    for i in range(count):
        down, right = shift[0, i], shift[1, i]
        for layer in range(layers):
            for y in range(height):
                row = min(max(y + down, 0), height - 1)
                for x in range(width):
                    column = min(max(x + right, 0), width - 1)
                    for c in range(depth):
                        moved[i, layer, y, x, c] = images[i, layer, row, column, c]
