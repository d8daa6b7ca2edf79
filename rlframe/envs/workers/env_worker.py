"""The main loop of a worker process: serves the parent with a group of envs, and dies with it."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.timestep import EnvSpec, IntArray
from rlframe.envs.base_env import BESIDE
from rlframe.envs.env_group import FEW, EnvGroup
from rlframe.envs.faults import Fault
from rlframe.envs.workers.shared_arrays import IDLE, SharedArrays, WatchArray
from rlframe.envs.workers.worker_process import CHUNK, ERROR, REPLY, STEP, message, parsed
from rlframe.errors import EnvCrashedError, RLFrameError
from rlframe.run.lifeline import die_with_parent
from rlframe.utils.serialize import from_bytes, plain_to_bytes

NOTHING = message(REPLY)
"""The answer of steps whose results are all in the shared arrays."""


def main(index: int, worker_num: int, link: int, memory: int, lifeline: int, parent: int) -> None:
    """Serves the parent until it closes the connection.

    Args:
        index: Index of this worker.
        worker_num: Number of workers.
        link: File descriptor of the connection.
        memory: File descriptor of the shared memory.
        lifeline: File descriptor of a pipe whose other end the parent holds.
        parent: Process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # an env may print while in the background of a terminal
    for fd in (link, memory, lifeline):
        os.set_inheritable(fd, False)
    die_with_parent(lifeline, parent)
    with socket.socket(fileno=link) as connection:
        EnvWorker(connection, memory, WatchArray(memory, worker_num), index).serve()


class EnvWorker:
    """Handles the requests of the parent, one message at a time.

    Args:
        connection: The connection with the parent.
        memory: File descriptor of the shared memory.
        watch: Records the env that is being used.
        index: Index of this worker.
    """

    def __init__(self, connection: socket.socket, memory: int, watch: WatchArray, index: int) -> None:
        self._connection, self._memory, self._watch, self._index = connection, memory, watch, index
        self._group: Any = None
        self._seeded = False

    def serve(self) -> None:
        """Answers every message until the parent sends ``close`` or is gone."""
        while (received := self._receive()) is not None:
            kind, body = received
            try:
                told = self._step(body) if kind == STEP else self._call(body)
                answer = message(REPLY, told) if told else NOTHING
            except Exception as error:  # the parent raises it, whatever it is
                answer = message(ERROR, _portable(error))
            self._watch.env[self._index] = IDLE
            try:
                self._connection.sendall(answer)
            except OSError:
                break
        if self._group is not None:
            self._group.close()

    def _receive(self) -> tuple[int, bytes] | None:
        try:
            data: bytes | bytearray = self._connection.recv(CHUNK)
            while (whole := parsed(data)) is None:
                chunk = self._connection.recv(CHUNK)
                if not chunk:
                    return None
                data = bytearray(data) if isinstance(data, bytes) else data
                data += chunk
        except OSError:
            return None
        return whole

    def _call(self, body: bytes) -> bytes:
        method, args = from_bytes(body)
        return plain_to_bytes(getattr(self, method)(*args), method)

    def _at(self, env: int) -> None:
        self._watch.since[self._index] = time.monotonic()
        self._watch.env[self._index] = env

    def _note(self, what: str) -> None:
        """Records work other than the parent's requests."""
        self._watch.since[self._index] = time.monotonic()
        self._watch.beside[self._index] = BESIDE.index(what)

    # methods called by the parent

    def launch(self, make: bytes, env_id: Sequence[int]) -> list[EnvSpec]:
        """Creates the envs of this worker, and returns the spec of each."""
        self.take(make, env_id)
        specs: list[EnvSpec] = self._group.launch()
        return specs

    def take(self, make: bytes, env_id: Sequence[int]) -> None:
        """Sets the factories of the envs; missing envs are created when they are reset."""
        functions = from_bytes(make)
        self._group = EnvGroup({env: functions[env] for env in env_id}, self._at, True, self._note)
        self._own, self._whole = np.array(env_id, np.int64), slice(env_id[0], env_id[-1] + 1)

    def attach(self, spec: EnvSpec, env_num: int) -> None:
        """Opens the shared arrays."""
        self._arrays = SharedArrays(self._memory, self._watch.nbytes, spec, env_num)
        self._group.attach(spec, self._arrays.counts)
        self._rows = [self._arrays.rows(which, self._whole) for which in (0, 1)]

    def join(
        self,
        make: bytes,
        own: Sequence[int],
        spec: EnvSpec,
        env_num: int,
        env_id: Sequence[int],
        seeds: Sequence[int | None],
    ) -> list[Fault]:
        """Replaces a lost worker, and begins episodes like ``reset``."""
        self.take(make, own)
        self.attach(spec, env_num)
        return self.reset(env_id, seeds)

    def reset(self, env_id: Sequence[int], seeds: Sequence[int | None]) -> list[Fault]:
        """Begins episodes and returns the envs that failed."""
        # for envs that draw from the global generators
        if not self._seeded and seeds and seeds[0] is not None:
            self._seeded = True
            random.seed(seeds[0])
            np.random.seed(seeds[0])  # noqa: NPY002  the global generator is what is to be seeded
        faults: list[Fault] = self._group.reset(np.array(env_id, np.int64), seeds, self._arrays.first_obs)
        return faults

    def _step(self, body: bytes) -> bytes:
        """Steps envs; returns the results that do not fit into the shared arrays."""
        which, action, listed = body[0], self._arrays.action(chr(body[1])), body[2:]
        env_id = np.frombuffer(listed, np.int64) if listed else self._own
        place: Any = env_id if listed else self._whole
        answers, faults = self._group.answers(action[place], env_id)
        infos: Sequence[Any]
        if not listed and len(env_id) <= FEW and not faults and self._rows[which].take(answers):
            infos = [answer[4] for answer in answers]
        else:
            infos = self._put(answers, faults, env_id, which, place)
        remarks = self._group.remarks.take() if self._group.remarks.held else ()
        if not any(infos) and not faults and not remarks:
            return b''
        told = {env: dict(info) for env, info in zip(env_id.tolist(), infos, strict=False) if info}
        remedy = "An env's info may hold what can be pickled only."
        return plain_to_bytes({**told, 'faults': faults, 'remarks': remarks}, 'info', remedy)

    def _put(
        self, answers: Sequence[Any], faults: Sequence[Fault], env_id: IntArray, which: int, place: Any
    ) -> Sequence[Any]:
        """Puts answers into the shared arrays, checked, and returns their infos."""
        arrays = self._arrays
        obs = arrays.obs[which]
        is_slice = isinstance(place, slice)
        rows = obs[place] if is_slice else np.empty((len(env_id), *obs.shape[1:]), obs.dtype)
        columns = self._group.columns(answers, faults, env_id, rows)
        if not is_slice:
            obs[place] = rows
        arrays.reward[place], arrays.terminated[place] = columns.reward, columns.terminated
        arrays.truncated[place] = columns.truncated
        infos: Sequence[Any] = columns.infos
        return infos

    def capture(self) -> dict[int, Any]:
        """Returns the states of the envs."""
        states: dict[int, Any] = self._group.capture()[0]
        return states

    def restore(self, states: dict[int, Any]) -> dict[int, str]:
        """Restores the states of envs, and returns the envs that could not be restored."""
        unfit: dict[int, str] = self._group.restore(states)
        return unfit

    def render(self, env: int) -> Any:
        """Returns a picture of an env."""
        self._at(env)
        return self._group.render(env)


def _portable(error: Exception) -> bytes:
    """Serializes an error, with its traceback in this process."""
    text = ''.join(traceback.format_exception(error)).rstrip()
    if type(error).__module__ == RLFrameError.__module__:  # an env's own kinds may hold anything
        error.add_note(f'In the worker process:\n{text}')
        return plain_to_bytes(error, 'error')
    told = EnvCrashedError(f'a worker of envs raised {type(error).__name__}: {error}\n{text}')
    return plain_to_bytes(told, 'error')
