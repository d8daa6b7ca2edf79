"""Arrays that the parent and its env workers share, in anonymous memory that cannot be leaked."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.observation import obs_dtype
from rlframe.data.timestep import Array, BoolArray, EnvSpec, FloatArray
from rlframe.envs.env_group import Counts

ALIGNMENT = 64
"""Alignment of arrays in bytes."""
IDLE = -1
"""Marks a worker that uses no env, in place of an env id."""


def new_memory() -> int:
    """Creates empty shared memory and returns its file descriptor."""
    if hasattr(os, 'memfd_create'):
        return os.memfd_create('rlframe')
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_memory(memory: int, nbytes: int) -> Any:
    """Maps shared memory, enlarged if it is too small, for the lifetime of the arrays on it.

    Unlike ``mmap.mmap`` it keeps no file descriptor open, so that arrays may outlive their envs at no cost.

    Args:
        memory: File descriptor of the memory.
        nbytes: Number of bytes to map, from its beginning.

    Returns:
        A buffer.

    Raises:
        OSError: If the system refuses.
    """
    if os.fstat(memory).st_size < nbytes:
        os.ftruncate(memory, nbytes)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, ctypes.c_size_t(nbytes), access, mmap.MAP_SHARED, memory, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f'no {nbytes} bytes of shared memory')
    block = (ctypes.c_ubyte * nbytes).from_address(address)
    unmap = weakref.finalize(block, libc.munmap, ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
    unmap.atexit = False  # arrays on it may be read until the very end
    return block


class WatchArray:
    """Tracks the current env of each worker and since when, so that an env that hangs or dies can be named.

    Args:
        memory: File descriptor of the shared memory, whose first bytes it takes.
        worker_num: Number of workers, W.
    """

    def __init__(self, memory: int, worker_num: int) -> None:
        self.nbytes = _aligned(worker_num * 24)
        """Size in bytes."""
        block = np.frombuffer(map_memory(memory, self.nbytes), np.float64, 3 * worker_num)
        self.env, self.since, self.beside = block.reshape(3, worker_num)
        """Env id or ``IDLE``, monotonic time, and number of the current call within the request, [W] each."""


class SharedRows(NamedTuple):
    """The rows of a few envs in the shared arrays, each array [n, ...]."""

    obs: Array
    reward: FloatArray
    terminated: BoolArray
    truncated: BoolArray

    def take(self, answers: Sequence[Any]) -> bool:
        """Copies the answers of steps into the rows, if all are exactly as declared; for few rows the fastest way.

        Returns:
            Whether they are; otherwise the rows are meaningless.
        """
        dtype, shape = self.obs.dtype, self.obs.shape[1:]
        for i, answer in enumerate(answers):
            if type(answer) is not tuple or len(answer) != 5:
                return False
            obs, reward, terminated, truncated, info = answer
            is_plain = type(obs) is np.ndarray and obs.dtype == dtype and obs.shape == shape
            is_plain &= type(terminated) is bool and type(truncated) is bool and type(info) is dict
            if not is_plain or not isinstance(reward, float):
                return False
            self.obs[i], self.reward[i] = obs, reward
            self.terminated[i], self.truncated[i] = terminated, truncated
        return True


class SharedArrays:
    """Every field of a step of N envs, and their counts.

    Args:
        memory: File descriptor of the shared memory.
        offset: Number of bytes at its beginning that are used otherwise.
        spec: The common spec of the envs.
        env_num: Number of envs, N.
    """

    def __init__(self, memory: int, offset: int, spec: EnvSpec, env_num: int) -> None:
        action = spec.action_space
        obs_type, shape = obs_dtype(spec.observation_space)
        obs_shape = (env_num, *shape)
        self.action_shape = (env_num, *(action.shape or ()))
        """Shape of the actions of all envs."""
        fields: list[tuple[tuple[int, ...], Any]] = [
            (obs_shape, obs_type),
            (obs_shape, obs_type),
            (obs_shape, obs_type),
            ((env_num,), np.float64),
            ((env_num,), np.bool_),
            ((env_num,), np.bool_),
            ((env_num,), np.int64),
            ((env_num,), np.int64),
            ((env_num,), np.int64),
            (self.action_shape, np.int64),
        ]
        offsets = [offset]
        for shape, dtype in fields:
            offsets.append(_aligned(offsets[-1] + math.prod(shape) * np.dtype(dtype).itemsize))
        block = map_memory(memory, offsets[-1])
        arrays = [
            np.frombuffer(block, dtype, math.prod(shape), at).reshape(shape)
            for (shape, dtype), at in zip(fields, offsets, strict=False)
        ]
        self.obs = arrays[:2]
        """Observations after a step, two sets, [N, ...] each."""
        self.first_obs: Array = arrays[2]
        """Observations after a reset, [N, ...]."""
        self.reward, self.terminated, self.truncated = arrays[3:6]
        """[N] each."""
        self.counts = Counts(*arrays[6:9])
        """The counters of each env."""
        self._action_bytes = arrays[9].reshape(-1).view(np.uint8)
        self._actions: dict[str, Array] = {}

    def rows(self, which: int, place: slice) -> SharedRows:
        """Returns the rows of some envs, with one of the two sets of observations."""
        columns = (self.reward, self.terminated, self.truncated)
        return SharedRows(self.obs[which][place], *(column[place] for column in columns))

    def action(self, dtype: str) -> Array:
        """Returns the actions as an array of a type of at most 8 bytes, [N, ...]; all types share the same memory."""
        if dtype not in self._actions:
            size = math.prod(self.action_shape) * np.dtype(dtype).itemsize
            self._actions[dtype] = self._action_bytes[:size].view(dtype).reshape(self.action_shape)
        return self._actions[dtype]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
