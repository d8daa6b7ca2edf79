"""The parent's handle of a child process with some of the envs: starts, calls, waits for and ends it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from rlframe.errors import EnvStartError, WorkerLostError
from rlframe.run.child_process import ChildProcess
from rlframe.utils.serialize import plain_to_bytes

HEADER = struct.Struct('<QB')
"""Header of every message: the number of bytes after it, and its kind."""
STEP, CALL, REPLY, ERROR = range(4)
"""Kinds of messages: the first two go to a worker, the others come from it."""
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


class WorkerProcess(ChildProcess):
    """A child process that holds some of the envs.

    It stays in this session: Linux schedules cores by session, and processes that wait for each other must not wait for another
    session's turn.
    """

    def __init__(self, index: int, worker_num: int, env_id: Sequence[int], memory: int) -> None:
        self.index = index
        self.env_id = tuple(env_id)
        self.link, theirs = socket.socketpair()
        """Connection with the worker."""
        # start the process
        fds = (theirs.fileno(), memory)
        program = f'env {self.env_id[0]}', 'rlframe.envs.env_worker', (index, worker_num, *fds)
        try:
            super().__init__(*program, fds=fds, env={**os.environ, **ONE_THREAD})
        except WorkerLostError as error:
            self.link.close()
            raise EnvStartError(error.message) from error
        finally:
            theirs.close()
        # watch it
        for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.link.setsockopt(socket.SOL_SOCKET, limit, struct.pack('ll', MESSAGE_SECONDS, 0))
        self.sentinel = os.pidfd_open(self.pid) if hasattr(os, 'pidfd_open') else None
        """File descriptor that becomes readable when it ends; None if the system does not support that."""
        self.fds = [fd for fd in (self.link.fileno(), self.sentinel) if fd is not None]
        """File descriptors that become readable when there is an event, the connection first."""

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

    def close(self) -> None:
        """Kills it, and everything that it started; may be called twice."""
        self.end(0.0)
        self.link.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None
