"""FlaskFSTransport: a worker's end of ``flask_fs``."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, IncompleteRead, RemoteDisconnected
from pathlib import Path
from time import monotonic
from typing import Any

from rlframe.errors import MessageError, RequestRefusedError
from rlframe.parallel.transport.base import (
    ATTEMPT_TIMEOUT,
    PROTOCOL,
    Envelope,
    Reply,
    Transport,
    TransportConfig,
    decode,
    encode,
)
from rlframe.parallel.transport.flask_fs_folder import DOWN, UP, SharedFolder, number_of
from rlframe.parallel.transport.flask_fs_http import (
    BUSY,
    FOLDER_HEADER,
    JSON_TYPE,
    MESSAGE_PATH,
    OTHER_FOLDER,
    PROTOCOL_HEADER,
    SAME_FOLDER,
    SharedFolderConfig,
    parse_address,
    token_of,
    url_of,
)
from rlframe.parallel.transport.flask_fs_server import FlaskFSServer
from rlframe.parallel.transport.messages import Join
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils import strict_json

MOST_ANSWER = 8 * 2**20
"""Bytes of the longest answer that is read."""
SEEN_SECONDS, CONNECT_SECONDS = 3.0, 3.0
"""How long a file may take to become visible on this machine, and a connection to open."""


class FlaskFSConfig(TransportConfig, SharedFolderConfig):
    """Options of ``FlaskFSTransport``."""

    attempt_timeout: float = ATTEMPT_TIMEOUT


@TRANSPORT_REGISTRY.register('flask_fs')
class FlaskFSTransport(Transport):
    """Sends messages over HTTP and arrays through files in a shared folder.

    Args:
        cfg: Options.
        address: Address of the coordinator: ``http://host:port``.
    """

    _cfg: FlaskFSConfig
    server_cls = FlaskFSServer

    def __init__(self, cfg: Mapping[str, Any] | None, address: str) -> None:
        self._host, self._port = parse_address(address)
        super().__init__(cfg, url_of(self._host, self._port))
        self._headers = {'Content-Type': JSON_TYPE}
        if token := token_of(self._cfg):
            self._headers['Authorization'] = f'Bearer {token}'
        self._folder = SharedFolder(
            self._cfg.path_data, self._cfg.max_payload_bytes, self._cfg.max_folder_bytes
        )
        self._number = number_of(self._session)
        self._uploads: dict[int, Path] = {}
        self._pool_lock = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._busy: set[HTTPConnection] = set()

    def pack(self, envelope: Envelope, payload: Any) -> None:
        """Writes the payload to its file."""
        ended = not self._folder.path.is_dir()  # with the coordinator, which the attempts to come will show
        if payload is not None and not ended:
            file = self._folder.payload_file(self._number, envelope.seq, UP)
            self._uploads[envelope.seq] = file
            self._folder.write(file, payload)

    def settle(self, envelope: Envelope) -> None:
        """Deletes the file of a payload if the coordinator did not."""
        if (file := self._uploads.pop(envelope.seq, None)) is not None:
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def carry(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        """Sends an envelope once and returns the reply; a request to join shows that this worker sees the folder."""
        body = json.dumps(strict_json.to_tagged(encode(envelope)), allow_nan=False).encode('ascii')
        is_join = isinstance(envelope.message, Join)
        status, tree = self._posted(body, seconds, is_join)
        end = monotonic() + min(seconds, SEEN_SECONDS)
        while is_join and status == OTHER_FOLDER:  # a new file may take a moment to be seen on this machine
            if monotonic() >= end or self._closed.wait(0.05):
                raise RequestRefusedError(
                    f'{self._folder.path} is not the folder of the coordinator',
                    where='path_data',
                    remedy=SAME_FOLDER,
                )
            status, tree = self._posted(body, seconds, is_join)
        try:
            reply = decode(tree)
        except MessageError as error:
            raise self._unusual(f'it sent a bad message: {error}') from error
        return Reply(reply.message, self._payload(envelope.seq) if reply.has_payload else None)

    def hurry(self, seconds: float) -> None:
        """Lets requests wait for so many seconds at most; those that wait already are repeated, with the new limit."""
        super().hurry(seconds)
        for connection in list(self._busy):  # without the lock, which the interrupted thread may hold
            _cut(connection)

    def close(self) -> None:
        """Closes all connections; requests that wait for a reply fail."""
        super().close()
        with self._pool_lock:
            idle, self._idle = self._idle, []
            for connection in self._busy:
                _cut(connection)
        for connection in idle:
            connection.close()

    def _payload(self, seq: int) -> Any:
        file = self._folder.payload_file(self._number, seq, DOWN)
        if not file.exists():
            raise ConnectionError(f'the payload of the reply, {file.name}, is not in {self._folder.path}')
        return self._folder.take(file)

    def _posted(self, body: bytes, seconds: float, is_join: bool) -> tuple[int, dict[str, Any]]:
        """Sends a body and returns status and JSON of the answer.

        Raises:
            RequestRefusedError: If what answers is no coordinator, or one with another protocol.
            OSError: If no answer came, or the coordinator is busy.
        """
        headers = {**self._headers, FOLDER_HEADER: self._folder.secret} if is_join else self._headers
        connection, is_good = self._taken(), False
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(min(seconds, self._cfg.attempt_timeout))
            connection.request('POST', MESSAGE_PATH, body, headers)
            answer = connection.getresponse()
            length = answer.length
            data = answer.read(MOST_ANSWER)
            if length is not None and len(data) < length:
                raise IncompleteRead(data)
            is_good = not answer.will_close and answer.isclosed()
        except (RemoteDisconnected, IncompleteRead) as error:
            raise ConnectionError(f'the connection was cut: {type(error).__name__}') from error
        except HTTPException as error:
            raise self._unusual(f'it does not speak HTTP ({type(error).__name__})') from error
        finally:
            self._give_back(connection, is_good)
        if (protocol := answer.getheader(PROTOCOL_HEADER)) != str(PROTOCOL):
            raise self._unusual(
                f'its answer is {answer.status} {answer.reason}'
                if protocol is None
                else f'it has version {protocol[:8]} of the messages, and this rlframe {PROTOCOL}'
            )
        tree = self._parsed(data)
        if answer.status == BUSY:
            raise ConnectionError(f'the coordinator is busy: {str(tree.get("fields"))[:300]}')
        return answer.status, tree

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            tree = strict_json.from_tagged(strict_json.loads(data, 'MANIFEST'))
        except (ValueError, TypeError) as error:
            raise self._unusual(f'it sent bad JSON: {error}') from error
        if not isinstance(tree, dict):
            raise self._unusual('it sent something else than a message')
        return tree

    def _taken(self) -> HTTPConnection:
        """Returns a connection that no other thread uses; a new one is not open yet."""
        with self._pool_lock:
            new = HTTPConnection(
                self._host, self._port, timeout=min(CONNECT_SECONDS, self._cfg.attempt_timeout)
            )
            connection = self._idle.pop() if self._idle else new
            self._busy.add(connection)
        return connection

    def _give_back(self, connection: HTTPConnection, is_good: bool) -> None:
        with self._pool_lock:
            self._busy.discard(connection)
            if is_good and not self._closed.is_set():
                self._idle.append(connection)
                return
        connection.close()

    def _unusual(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(
            f'what answers there is no coordinator of this rlframe: {what}',
            where=self._where,
            remedy='Check the address, and install the same version of rlframe everywhere.',
        )


def _cut(connection: HTTPConnection) -> None:
    """Ends a connection that another thread reads from."""
    if (opened := connection.sock) is not None:
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)
