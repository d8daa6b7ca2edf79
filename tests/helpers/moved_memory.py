"""numpy arrays at other places in memory: a law that holds wherever arrays lie owes nothing to the allocator."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from numba import types

ALIGNMENT = 64
SET_HANDLER = 304
"""Index of ``PyDataMem_SetHandler`` in the table of numpy's C API (NEP 49)."""


class _Handler(ctypes.Structure):
    _fields_ = [
        ('name', ctypes.c_char * 127),
        ('version', ctypes.c_uint8),
        *((part, ctypes.c_void_p) for part in ('ctx', 'malloc', 'calloc', 'realloc', 'free')),
    ]


def moved(array: np.ndarray, offset: int) -> np.ndarray:
    """Returns a copy of an array that begins ``offset`` bytes past a multiple of 64."""
    room = np.empty(array.nbytes + 2 * ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % ALIGNMENT + offset
    copy = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@contextmanager
def arrays_at(offset: int) -> Iterator[None]:
    """Lets every array that this thread makes begin ``offset`` bytes past a multiple of 64.

    malloc gives multiples of 16; 8 shows what depends on them also on processors that look no further.
    """
    assert offset % 8 == 0 and offset < ALIGNMENT
    before = _set_handler(_capsule(offset))
    try:
        assert np.ones(1000).ctypes.data % ALIGNMENT == offset
        yield
    finally:
        _set_handler(before)


def move_from_now_on(offset: int) -> None:
    """Lets every array that this thread makes from now on begin ``offset`` bytes past a multiple of 64."""
    _set_handler(_capsule(offset))


def _set_handler(capsule: Any) -> Any:
    table = ctypes.cast(
        _pointer(np._core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p)
    )
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[SET_HANDLER])(capsule)


def _pointer(capsule: Any, name: bytes | None) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


@functools.cache
def _capsule(offset: int) -> Any:
    """Returns the allocator as numpy wants it; it lives as long as the process, as arrays made by it may."""
    functions = _allocator(offset)
    addresses = {name: function.address for name, function in functions.items()}
    handler = _Handler(name=b'moved', version=1, ctx=None, **addresses)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b'mem_handler'
    _KEPT.append((functions, handler, name))
    return new(ctypes.addressof(handler), name, None)


_KEPT: list[Any] = []


def _allocator(offset: int) -> dict[str, Any]:
    libc = ctypes.CDLL(None)
    word = ctypes.c_size_t  # also for addresses: numba computes with them

    def function(name: str, arguments: int) -> Any:
        found = libc[name]
        found.argtypes, found.restype = [word] * arguments, word
        return found

    aligned_alloc, free = function('aligned_alloc', 2), function('free', 1)
    memset, memcpy, usable = function('memset', 3), function('memcpy', 3), function('malloc_usable_size', 1)
    n = types.uintp

    @numba.cfunc(n(n, n))
    def malloc_moved(ctx, size):
        return aligned_alloc(n(64), (size + n(191)) & ~n(63)) + n(offset)

    @numba.cfunc(n(n, n, n))
    def calloc_moved(ctx, count, size):
        base = aligned_alloc(n(64), (count * size + n(191)) & ~n(63))
        memset(base, n(0), count * size + n(64))
        return base + n(offset)

    @numba.cfunc(n(n, n, n))
    def realloc_moved(ctx, old, size):
        base = aligned_alloc(n(64), (size + n(191)) & ~n(63))
        if old != n(0):
            room = usable(old & ~n(63)) - n(64)
            memcpy(base + n(offset), old, room if room < size else size)
            free(old & ~n(63))
        return base + n(offset)

    @numba.cfunc(types.void(n, n, n))
    def free_moved(ctx, old, size):
        if old != n(0):
            free(old & ~n(63))

    return {'malloc': malloc_moved, 'calloc': calloc_moved, 'realloc': realloc_moved, 'free': free_moved}
