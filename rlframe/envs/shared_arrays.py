"""Arrays that the parent and its env workers share, in memory that has no name and so cannot be left behind."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, EnvSpec
from rlframe.envs.env_group import Counts

ALIGNMENT = 64
"""Bytes at whose multiples arrays begin."""
IDLE = -1
"""In place of an env id: the worker is at none."""


def new_memory() -> int:
    """Returns a file descriptor of shared memory of no size."""
    if hasattr(os, 'memfd_create'):
        return os.memfd_create('rlframe')
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class WatchArray:
    """Which env each worker is at and since when, so that an env that hangs or dies can be named.

    Args:
        memory: File descriptor of the shared memory, whose first bytes it takes.
        worker_num: Number of workers, W.
    """

    def __init__(self, memory: int, worker_num: int) -> None:
        self.nbytes = _aligned(worker_num * 16)
        """Bytes that it takes."""
        if os.fstat(memory).st_size < self.nbytes:
            os.ftruncate(memory, self.nbytes)
        block = np.frombuffer(mmap.mmap(memory, self.nbytes), np.float64, 2 * worker_num)
        self.env, self.since = block.reshape(2, worker_num)
        """Env id or ``IDLE``, and reading of the monotonic clock, [W] each."""


class SharedArrays:
    """Every field of a step of N envs, and their counts.

    Args:
        memory: File descriptor of the shared memory; it is enlarged where it is too small.
        offset: Bytes at its beginning that belong to others.
        spec: What the envs have in common.
        env_num: Number of envs, N.
    """

    def __init__(self, memory: int, offset: int, spec: EnvSpec, env_num: int) -> None:
        obs, action = spec.observation_space, spec.action_space
        obs_shape = (env_num, *(obs.shape or ()))
        self.action_shape = (env_num, *(action.shape or ()))
        """Shape of the actions of all envs."""
        fields: list[tuple[tuple[int, ...], Any]] = [
            (obs_shape, obs.dtype),
            (obs_shape, obs.dtype),
            (obs_shape, obs.dtype),
            ((env_num,), np.float32),
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
        if os.fstat(memory).st_size < offsets[-1]:
            os.ftruncate(memory, offsets[-1])
        block = mmap.mmap(memory, offsets[-1])
        arrays = [
            np.frombuffer(block, dtype, math.prod(shape), at).reshape(shape)
            for (shape, dtype), at in zip(fields, offsets, strict=False)
        ]
        self.obs = arrays[:2]
        """Observations behind a step, two sets, [N, ...] each."""
        self.first_obs: Array = arrays[2]
        """Observations behind a reset, [N, ...]."""
        self.reward, self.terminated, self.truncated = arrays[3:6]
        """[N] each."""
        self.counts = Counts(*arrays[6:9])
        """What is counted of each env."""
        self._action_bytes = arrays[9].reshape(-1).view(np.uint8)
        self._actions: dict[str, Array] = {}

    def action(self, dtype: str) -> Array:
        """Returns the actions as an array of a type of at most 8 bytes, [N, ...]; all types share the same memory."""
        if dtype not in self._actions:
            size = math.prod(self.action_shape) * np.dtype(dtype).itemsize
            self._actions[dtype] = self._action_bytes[:size].view(dtype).reshape(self.action_shape)
        return self._actions[dtype]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
