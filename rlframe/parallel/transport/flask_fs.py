"""The transport ``flask_fs``: messages over HTTP, and arrays in files of a shared folder; both ends."""

from __future__ import annotations

import hmac
import itertools
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from rlframe.errors import ConfigError, MessageError, RequestRefusedError
from rlframe.parallel.transport.answering import AnsweringServer, Newest, refusal, said
from rlframe.parallel.transport.base import (
    MOST_AT_ONCE,
    PROTOCOL,
    Envelope,
    Handler,
    Reply,
    Transport,
    TransportConfig,
    decode,
    encode,
)
from rlframe.parallel.transport.flask_fs_folder import DOWN, SHARED, UP, OwnedFolder, SharedFolder, number_of
from rlframe.parallel.transport.flask_fs_http import (
    BUSY,
    FOLDER_HEADER,
    JSON_TYPE,
    MESSAGE_PATH,
    PROTOCOL_HEADER,
    SAME_FOLDER,
    TOKEN,
    HTTPServer,
    SharedFolderConfig,
    bound_socket,
    is_loopback,
    make_app,
    parse_address,
    refused_body,
    token_of,
    url_of,
)
from rlframe.parallel.transport.messages import Join
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils import strict_json
from rlframe.utils.field import fields_of, option
from rlframe.utils.files import LimitExceededError


class Sent(NamedTuple):
    """A reply as it is kept for repeated requests."""

    body: bytes
    file: Path | None = None


class ServerConfig(SharedFolderConfig):
    """Options of ``FlaskFSServer``."""

    host: str = option(
        '127.0.0.1',
        reaches='network',
        harmless=lambda value: isinstance(value, str) and is_loopback(value),
        doc='address to listen on; one that other machines reach needs a token',
    )
    port: int = option(0, range='[0, 65535]', doc='port to listen on; 0 takes a free one')
    max_workers: int = option(64, range='[1, 1000]', doc='number of workers that may be connected')
    max_body: int = option(2**20, range='[1024, 8388608]', unit='bytes', doc='size of the largest message')


class FlaskFSServer(AnsweringServer[Sent]):
    """Takes messages over HTTP and arrays from files in a shared folder.

    Args:
        cfg: Options.

    Raises:
        ConfigError: If it would listen on other machines' addresses without a token.
    """

    _cfg: ServerConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._token = token_of(self._cfg)
        if not self._token and not is_loopback(self._cfg.host):
            raise _unprotected(self._cfg.host)
        self._http: HTTPServer | None = None
        self._socket: socket.socket | None = None
        self._folder: OwnedFolder | None = None
        self._newest, self._count = Newest(self._write, _delete), itertools.count()

    @classmethod
    def check_config(cls, cfg: ServerConfig) -> list[ConfigError]:
        """Returns an error if other machines could connect without a token."""
        errors = super().check_config(cfg)
        if not is_loopback(cfg.host) and not token_of(cfg):
            errors.append(_unprotected(cfg.host))
        return errors

    def start(self, handler: Handler) -> None:
        """Opens the folder and the port, and begins to answer.

        Raises:
            ConfigError: If the port or the folder cannot be used; nothing is left open.
        """
        cfg = self._cfg
        super().start(handler)
        app = make_app(self._serve, self._token, cfg.max_body)
        try:
            self._socket = bound_socket(cfg.host, cfg.port)
            self._folder = OwnedFolder(cfg.path_data, cfg.max_payload_bytes)
            self._secret = self._folder.secret.encode()
            connections, threads = 4 * cfg.max_workers + 16, min(2 * cfg.max_workers + 2, 32)
            self._http = HTTPServer(app, self._socket, threads, connections, cfg.max_body)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        assert self._socket is not None, 'the server has not started'
        host, port = self._cfg.host, self._socket.getsockname()[1]
        return url_of(socket.gethostname() if host in ('0.0.0.0', '::') else host, port)

    def connect(self, cfg: Mapping[str, Any] | None = None) -> Transport:
        """Returns a connection with the folder and the token of this server."""
        shared = {name: self._cfg[name] for name in fields_of(SharedFolderConfig)} | {
            'token': self._token or None
        }
        made: Transport = TRANSPORT_REGISTRY.build('flask_fs', {**shared, **(cfg or {})}, self.address)
        return made

    def forget(self, worker: str) -> None:
        session = self._replies.session_of(worker)
        super().forget(worker)
        if session:
            self._files.delete(number_of(session))

    def close(self) -> None:
        super().close()
        if self._http is not None:
            self._http.close()
        elif self._socket is not None:
            self._socket.close()
        if self._folder is not None:
            self._folder.close()

    def keep(self, envelope: Envelope, reply: Reply) -> Sent:
        """Writes the payload of a reply, and returns its JSON."""
        sent = encode(Envelope('', envelope.seq, reply.message, reply.payload is not None))
        decode(sent)
        file = None
        if reply.payload is not None:
            file = self._files.payload_file(number_of(envelope.session), envelope.seq, DOWN)
            if not (reply.shared and self._is_linked(reply, file)):
                self._files.write(file, reply.payload)
        return Sent(json.dumps(strict_json.to_tagged(sent), allow_nan=False).encode('ascii') + b'\n', file)

    def release(self, kept: Sent) -> None:
        """Deletes the payload of a reply that is no longer kept."""
        if kept.file is not None:
            _delete(kept.file)

    def _is_linked(self, reply: Reply, file: Path) -> bool:
        """Gives a worker a hard link to the file of a payload that others get, too; returns whether it has one."""
        source = self._newest.get(reply.shared, reply.payload)
        try:
            os.link(source, file)
        except OSError:  # this file system may have none, or there is a newer payload by now
            return False
        return True

    def _write(self, payload: Any) -> Path:
        file = self._files.payload_file(0, next(self._count), SHARED)  # no connection has the number 0
        self._files.write(file, payload)
        return file

    @property
    def _files(self) -> OwnedFolder:
        assert self._folder is not None, 'the server has not started'
        return self._folder

    def _serve(self, body: bytes, secret: str) -> tuple[int, bytes]:
        """Returns status and JSON for a message, and the secret of the folder that its sender sees."""
        try:
            envelope = decode(strict_json.from_tagged(strict_json.loads(body, 'MANIFEST')))
        except MessageError as error:
            return 400, refused_body(said(error), error.remedy)
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            is_ours = isinstance(error, LimitExceededError | strict_json.JSONRefusedError)
            return 400, refused_body(
                f'the message is not JSON: {error}' if is_ours else 'the message is not JSON'
            )
        same = hmac.compare_digest(secret.encode('utf-8', 'replace'), self._secret)
        if isinstance(envelope.message, Join) and not same:
            return 200, refused_body(f'the worker sees another folder than {self._files.path}', SAME_FOLDER)
        try:
            return 200, self.answer(envelope, lambda: self._payload(envelope)).body
        except MessageError as error:
            return 200, self.keep(envelope, refusal(error)).body
        except OSError as error:
            return BUSY, refused_body(error.strerror or str(error), fatal=False)

    def _payload(self, envelope: Envelope) -> Any:
        if not envelope.has_payload:
            return None
        return self._files.take(self._files.payload_file(number_of(envelope.session), envelope.seq, UP))


def _delete(file: Path) -> None:
    file.unlink(missing_ok=True)


def _unprotected(host: str) -> ConfigError:
    return ConfigError(
        'other machines could connect, and there is no token',
        where='host',
        got=host,
        expected='an address of this machine only, such as 127.0.0.1',
        remedy=f'Or set the option token, or the variable {TOKEN}, to a secret that all roles share.',
    )


MOST_ANSWER = 8 * 2**20
"""Bytes of the longest answer that is read."""
ATTEMPT_SECONDS = 1.0
"""How long one attempt waits before the request is repeated, and how late the end of a connection may be noticed."""


class FlaskFSConfig(TransportConfig, SharedFolderConfig):
    """Options of ``FlaskFSTransport``."""


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
        self._folder = SharedFolder(self._cfg.path_data, self._cfg.max_payload_bytes)
        self._number = number_of(self._session)
        self._uploads: dict[int, Path] = {}
        self._pool = urllib3.HTTPConnectionPool(self._host, self._port, maxsize=MOST_AT_ONCE)

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
        reply = self._posted(body, seconds, isinstance(envelope.message, Join))
        return Reply(reply.message, self._payload(envelope.seq) if reply.has_payload else None)

    def close(self) -> None:
        super().close()
        self._pool.close()

    def _payload(self, seq: int) -> Any:
        file = self._folder.payload_file(self._number, seq, DOWN)
        if not file.exists():
            raise ConnectionError(f'the payload of the reply, {file.name}, is not in {self._folder.path}')
        return self._folder.take(file)

    def _posted(self, body: bytes, seconds: float, is_join: bool) -> Envelope:
        """Sends a body and returns the answer.

        Raises:
            RequestRefusedError: If what answers is no coordinator, or one with another protocol.
            OSError: If no answer came, or the coordinator is busy.
        """
        headers = {**self._headers, FOLDER_HEADER: self._folder.secret} if is_join else self._headers
        wait = min(seconds, ATTEMPT_SECONDS)
        try:
            answer = self._pool.urlopen(
                'POST', MESSAGE_PATH, body, headers, retries=False, timeout=wait, preload_content=False
            )
            data = answer.read(MOST_ANSWER)
            answer.close()  # returned to the pool already, unless there is more
        except urllib3.exceptions.ProtocolError as error:
            cause = error.args[-1]
            if isinstance(cause, HTTPException) and not isinstance(cause, OSError | IncompleteRead):
                raise self._unusual(f'it does not speak HTTP ({type(cause).__name__})') from error
            raise ConnectionError(f'the connection was cut: {type(cause).__name__}') from error
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(str(error)) from error
        if (protocol := answer.headers.get(PROTOCOL_HEADER)) != str(PROTOCOL):
            raise self._unusual(
                f'its answer is {answer.status} {answer.reason}'
                if protocol is None
                else f'it has version {protocol[:8]} of the messages, and this rlframe {PROTOCOL}'
            )
        try:
            reply = decode(strict_json.from_tagged(strict_json.loads(data, 'MANIFEST')))
        except (ValueError, TypeError) as error:
            raise self._unusual(f'it sent a bad message: {error}') from error
        if answer.status == BUSY:
            raise ConnectionError(f'the coordinator is busy: {vars(reply.message)}')
        return reply

    def _unusual(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(
            f'what answers there is no coordinator of this rlframe: {what}',
            where=self._where,
            remedy='Check the address, and install the same version of rlframe everywhere.',
        )
