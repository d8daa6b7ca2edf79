"""The parent's handle of a child process with some of the envs: starts, calls, waits for and ends it."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from rlframe.errors import EnvStartError
from rlframe.run.child_process import killed_by, spawn
from rlframe.utils.serialize import plain_to_bytes

HEADER = struct.Struct('<QB')
"""Header of every message: the number of bytes after it, and its kind."""
STEP, CALL, REPLY, ERROR = range(4)
"""Kinds of messages: the first two go to a worker, the others come from it."""
KILL_SECONDS = 20.0
"""Maximum seconds to wait for a killed process, which ends as soon as a busy machine lets it run."""
LOOK_SECONDS = 0.05
"""Seconds between two checks of processes without a sentinel."""
MESSAGE_SECONDS = 120
"""Maximum seconds in which the other process makes no progress within a message."""
CHUNK = 1 << 16
"""Number of bytes per read."""
ONE_THREAD = dict.fromkeys(
    ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'NUMEXPR_NUM_THREADS'), '1'
)
"""Environment of a worker: one thread each, as more would only compete for cores."""


def message(kind: int, body: bytes = b'') -> bytes:
    """Returns the bytes of a message."""
    return HEADER.pack(len(body), kind) + body


def parsed(data: bytes | bytearray) -> tuple[int, bytes] | None:
    """Returns the kind and the body of a message, or None if it is incomplete."""
    if len(data) < HEADER.size:
        return None
    size, kind = HEADER.unpack_from(data)
    return (kind, bytes(data[HEADER.size :])) if len(data) == HEADER.size + size else None


def receive(link: socket.socket, flags: int = 0) -> tuple[int, bytes]:
    """Waits for a message and returns its kind and its body.

    Args:
        link: The connection.
        flags: Flags of the first read; with ``MSG_DONTWAIT`` only a message that has begun is waited for.

    Raises:
        EOFError: If the other process has closed the connection.
        BlockingIOError: If nothing has arrived, or no more of a message within the limit of the connection.
        OSError: If the connection is broken.
    """
    data: bytes | bytearray = link.recv(CHUNK, flags)
    while (whole := parsed(data)) is None:
        chunk = link.recv(CHUNK) if data else b''
        if not chunk:
            raise EOFError
        data = bytearray(data) if isinstance(data, bytes) else data
        data += chunk
    return whole


def call(method: str, *args: Any) -> bytes:
    """Returns the message that calls a method of the worker."""
    return message(CALL, plain_to_bytes((method, args), method))


class WorkerProcess:
    """A child process that holds some of the envs.

    It is the leader of its own process group, which ends with it, including processes that its envs started. When this process
    dies, for any reason, the kernel closes the lifeline that both hold, which ends the group. The worker stays in this session:
    Linux schedules cores by session, and processes that wait for each other must not wait for another session's turn.
    """

    def __init__(self, index: int, worker_num: int, env_id: Sequence[int], memory: int) -> None:
        self.index = index
        self.env_id = tuple(env_id)
        self.link, theirs = socket.socketpair()
        """Connection with the worker."""
        # start the process
        fds = (theirs.fileno(), memory)
        options = {'stdin': subprocess.DEVNULL, 'env': {**os.environ, **ONE_THREAD}}
        try:
            started = spawn('rlframe.envs.env_worker', (index, worker_num, *fds), fds, **options)
            self._process, self._lifeline = started
        except OSError as error:
            self.link.close()
            raise EnvStartError(f'no process could be started for env {self.env_id[0]}: {error}') from error
        finally:
            theirs.close()
        # watch it
        for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.link.setsockopt(socket.SOL_SOCKET, limit, struct.pack('ll', MESSAGE_SECONDS, 0))
        self.pid = self._process.pid
        """Id of the process and of its process group."""
        self.sentinel = os.pidfd_open(self.pid) if hasattr(os, 'pidfd_open') else None
        """File descriptor that becomes readable when it ends; None if the system does not support that."""
        self.fds = [fd for fd in (self.link.fileno(), self.sentinel) if fd is not None]
        """File descriptors that become readable when there is an event, the connection first."""
        self._ending = ''

    def receive(self) -> tuple[int, bytes] | None:
        """Returns the kind and the body of a message, or None if none has begun to arrive.

        Raises:
            EOFError: If the worker has closed the connection, or stopped in the middle of a message.
        """
        try:
            return receive(self.link, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise EOFError from error

    def has_exited(self) -> bool:
        """Whether it has ended, by itself or not."""
        if self._ending:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code may wait for all children of this process
            return True

    def end(self, patience: float = 0.0) -> str:
        """Ends it, and everything that it started, after ``patience`` seconds, and returns the way it ended, in words.

        It may be called twice.
        """
        if self._ending:
            return self._ending
        wait_for_exits([self], patience)
        by_itself = self.has_exited()
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group may be empty
            # before waiting for its leader: until then its id is not reused
            os.killpg(self.pid, signal.SIGKILL)
        wait_for_exits([self], KILL_SECONDS)
        status = self._process.poll()
        self.link.close()
        os.close(self._lifeline)
        if self.sentinel is not None:
            os.close(self.sentinel)
        self._ending = _in_words(status) if by_itself and status is not None else 'closed its connection'
        return self._ending


def wait_for_exits(workers: Sequence[WorkerProcess], seconds: float) -> None:
    """Waits until all of the workers have ended, or for the given seconds."""
    deadline = time.monotonic() + seconds
    while running := [worker for worker in workers if not worker.has_exited()]:
        rest = deadline - time.monotonic()
        if rest <= 0:
            return
        poller = select.poll()
        for worker in running:
            if worker.sentinel is not None:
                poller.register(worker.sentinel, select.POLLIN)
        poller.poll(math.ceil(1000 * min(rest, LOOK_SECONDS)))


def _in_words(status: int) -> str:
    if status >= 0:
        return f'exited with code {status}'
    hint = '; out of memory?' if -status == signal.SIGKILL else ''
    return f'was {killed_by(-status)}{hint}'
