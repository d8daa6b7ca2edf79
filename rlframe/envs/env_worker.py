"""The main loop of a worker process: serves the parent with a group of envs, and dies with it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import random
import socket
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.observation import obs_dtype
from rlframe.data.timestep import Array, BoolArray, EnvSpec, FloatArray, IntArray
from rlframe.envs.env_manager import FEW, BaseEnvManager, Step
from rlframe.envs.faults import Fault
from rlframe.envs.interface import Episodes
from rlframe.envs.worker_process import ERROR, REPLY, STEP, message, receive
from rlframe.errors import EnvCrashedError, RLFrameError
from rlframe.run.exit_guard import readers_may_leave
from rlframe.utils.serialize import from_bytes, plain_to_bytes

ALIGNMENT = 64
"""Alignment of arrays in bytes."""
IDLE = -1
"""Marks a worker that uses no env, in place of an env id."""
NOTHING = message(REPLY)
"""The answer of steps whose results are all in the shared arrays."""


def new_memory() -> int:
    """Creates empty shared memory and returns its file descriptor."""
    if hasattr(os, 'memfd_create'):
        return os.memfd_create('rlframe')
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_memory(memory: int, nbytes: int) -> Any:
    """Maps the first ``nbytes`` of shared memory, enlarged if it is too small, for the lifetime of the arrays on the buffer.

    Unlike ``mmap.mmap`` it keeps no file descriptor open, so that arrays may outlive their envs at no cost.

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

    It takes the first bytes of the shared memory.
    """

    def __init__(self, memory: int, worker_num: int) -> None:
        self.nbytes = _aligned(worker_num * 16)
        """Size in bytes."""
        block = np.frombuffer(map_memory(memory, self.nbytes), np.float64, 2 * worker_num)
        self.env, self.since = block.reshape(2, worker_num)
        """Env id or ``IDLE``, and monotonic time, [W] each."""


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
        dtype = self.obs.dtype
        shape = self.obs.shape[1:]
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
    """The fields of a step of N envs, and their counts, in shared memory from byte ``offset`` on."""

    def __init__(self, memory: int, offset: int, spec: EnvSpec, env_num: int) -> None:
        action = spec.action_space
        obs_type, shape = obs_dtype(spec.observation_space)
        obs_shape = (env_num, *shape)
        self.action_shape = (env_num, *(action.shape or ()))
        """Shape of the actions of all envs."""
        fields: list[tuple[tuple[int, ...], Any]] = [
            *[(obs_shape, obs_type)] * 3,
            ((env_num,), np.float64),
            *[((env_num,), np.bool_)] * 2,
            *[((env_num,), np.int64)] * 3,
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
        self.counts = arrays[6:9]
        """The counters of ``Episodes``, [N] each."""
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


@readers_may_leave()
def main(index: int, worker_num: int, link: int, memory: int) -> None:
    """Serves the parent, as the worker of this index, until it closes the connection.

    ``link`` and ``memory`` are the file descriptors of the connection and of the shared memory.
    """
    for fd in (link, memory):
        os.set_inheritable(fd, False)
    with socket.socket(fileno=link) as connection:
        EnvWorker(connection, memory, WatchArray(memory, worker_num), index).serve()


class WorkerEnvs(BaseEnvManager):
    """The envs of one worker, which leaves all decisions to the parent, and records the env that is being used."""

    in_worker = True

    def __init__(self, make: Mapping[int, Callable[[], Any]], watch: WatchArray, index: int) -> None:
        self._watch, self._index = watch, index
        self._set_factories(make)

    def at(self, env: int) -> None:
        """Records the env that is being used."""
        self._watch.since[self._index] = time.monotonic()
        self._watch.env[self._index] = env

    def step_method(self, env: int) -> Step:
        step = self.envs[env].step

        def watched(action: Any) -> Any:
            self.at(env)
            return step(action)

        return watched


class EnvWorker:
    """Handles the requests of the parent, one message at a time."""

    def __init__(self, connection: socket.socket, memory: int, watch: WatchArray, index: int) -> None:
        self._connection, self._memory, self._watch, self._index = connection, memory, watch, index
        self._envs: Any = None
        self._seeded = False

    def serve(self) -> None:
        """Answers every message until the parent sends ``close`` or is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, body = receive(self._connection)
                self._connection.sendall(self._answer(kind, body))
        if self._envs is not None:
            self._envs.close()

    def _answer(self, kind: int, body: bytes) -> bytes:
        try:
            told = self._step(body) if kind == STEP else self._call(body)
            answer = message(REPLY, told) if told else NOTHING
        except Exception as error:  # the parent raises it, whatever it is
            answer = message(ERROR, _portable(error))
        self._watch.env[self._index] = IDLE
        return answer

    def _call(self, body: bytes) -> bytes:
        method, args = from_bytes(body)
        owner = self if hasattr(self, method) else self._envs
        return plain_to_bytes(getattr(owner, method)(*args), method)

    # methods called by the parent, beside capture, restore and render of the envs

    def launch(self, make: bytes, env_id: Sequence[int]) -> list[EnvSpec]:
        """Creates the envs of this worker, and returns the spec of each."""
        self.take(make, env_id)
        specs: list[EnvSpec] = self._envs.create_all()
        return specs

    def take(self, make: bytes, env_id: Sequence[int]) -> None:
        """Sets the factories of the envs; missing envs are created when they are reset."""
        functions = from_bytes(make)
        self._envs = WorkerEnvs({env: functions[env] for env in env_id}, self._watch, self._index)
        self._own = np.array(env_id, np.int64)
        self._whole = slice(env_id[0], env_id[-1] + 1)

    def attach(self, spec: EnvSpec, env_num: int) -> None:
        """Opens the shared arrays."""
        self._arrays = SharedArrays(self._memory, self._watch.nbytes, spec, env_num)
        self._envs.attach(spec, Episodes(env_num, self._arrays.counts))
        self._rows = [self._arrays.rows(which, self._whole) for which in (0, 1)]

    def join(
        self,
        make: bytes,
        own: Sequence[int],
        spec: EnvSpec,
        env_num: int,
        env_id: Sequence[int],
        seeds: Sequence[int | None],
        schedule: Mapping[str, Any],
    ) -> list[Fault]:
        """Replaces a lost worker, and begins episodes like ``reset``."""
        self.take(make, own)
        self.attach(spec, env_num)
        return self.reset(env_id, seeds, schedule)

    def reset(
        self, env_id: Sequence[int], seeds: Sequence[int | None], schedule: Mapping[str, Any]
    ) -> list[Fault]:
        """Begins episodes under a schedule, and returns the envs that failed."""
        self._envs.schedule = schedule
        # for envs that draw from the global generators
        if not self._seeded and seeds and seeds[0] is not None:
            self._seeded = True
            random.seed(seeds[0])
            np.random.seed(seeds[0])  # noqa: NPY002  the global generator is what is to be seeded
        due = dict(zip(env_id, seeds, strict=True))
        faults: list[Fault] = self._envs.begin_each(due, self._arrays.first_obs)
        return faults

    def _step(self, body: bytes) -> bytes:
        """Steps envs; returns the results that do not fit into the shared arrays."""
        which = body[0]
        action = self._arrays.action(chr(body[1]))
        listed = body[2:]
        env_id = np.frombuffer(listed, np.int64) if listed else self._own
        place: Any = env_id if listed else self._whole
        answers, faults = self._envs.answers(action[place], env_id)
        infos: Sequence[Any]
        if not listed and len(env_id) <= FEW and not faults and self._rows[which].take(answers):
            infos = [answer[4] for answer in answers]
        else:
            infos = self._put(answers, env_id, which, place)
        remarks = self._envs.remarks.take() if self._envs.remarks.held else ()
        if not any(infos) and not faults and not remarks:
            return b''
        told = {env: dict(info) for env, info in zip(env_id.tolist(), infos, strict=False) if info}
        remedy = "An env's info may hold what can be pickled only."
        return plain_to_bytes({**told, 'faults': faults, 'remarks': remarks}, 'info', remedy)

    def _put(self, answers: Sequence[Any], env_id: IntArray, which: int, place: Any) -> Sequence[Any]:
        """Puts answers into the shared arrays, checked, and returns their infos."""
        arrays = self._arrays
        obs = arrays.obs[which]
        is_slice = isinstance(place, slice)
        rows = obs[place] if is_slice else np.empty((len(env_id), *obs.shape[1:]), obs.dtype)
        step = self._envs.columns(answers, env_id, rows)
        if not is_slice:
            obs[place] = rows
        arrays.reward[place], arrays.terminated[place] = step.reward, step.terminated
        arrays.truncated[place] = step.truncated
        infos: Sequence[Any] = step.info
        return infos


def _portable(error: Exception) -> bytes:
    """Serializes an error, with its traceback in this process."""
    text = ''.join(traceback.format_exception(error)).rstrip()
    if type(error).__module__ == RLFrameError.__module__:  # an env's own kinds may hold anything
        error.add_note(f'In the worker process:\n{text}')
        return plain_to_bytes(error, 'error')
    told = EnvCrashedError(f'a worker of envs raised {type(error).__name__}: {error}\n{text}')
    return plain_to_bytes(told, 'error')
