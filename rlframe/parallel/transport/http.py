"""The transport ``flask_fs``: messages over HTTP, each with its arrays; both ends."""

from __future__ import annotations

import errno
import hmac
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from rlframe.data.timestep import Array
from rlframe.errors import ConfigError, MessageError, PayloadError, RequestRefusedError
from rlframe.parallel.transport.answering import Server, said
from rlframe.parallel.transport.base import PROTOCOL, Envelope, Handler, Reply, Transport, decode, encode
from rlframe.parallel.transport.messages import MAX_TEXT, Refused
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.remote.payload import pack, unpack
from rlframe.utils import strict_json
from rlframe.utils.field import Section, option
from rlframe.utils.files import LimitExceededError
from rlframe.utils.secrets import shown_address

logger = logging.getLogger('rlframe.transport')

TOKEN = 'RLFRAME_TOKEN'
"""Environment variable with the token, for those who want it in no file."""
SHORTEST_TOKEN = 16
PROTOCOL_HEADER = 'RLFrame-Protocol'
"""Header of every answer of a coordinator, with the version of its messages."""
PAYLOAD_HEADER = 'RLFrame-Payload'
"""Header with the bytes of the payload, which follows the message in the same body."""
LOCAL = ('127.0.0.1', 'localhost', '::1')
"""Hosts that are reached from this machine only."""
IDLE_SECONDS = 10.0
"""Seconds after which a connection is closed over which nothing comes."""
MOST_ANSWER = 8 * 2**20
"""Bytes of the longest message of an answer that is read."""
ATTEMPT_SECONDS, PAYLOAD_SECONDS = 1.0, 3.0
"""How long an attempt waits for the network before the request is repeated, without and with a payload."""
PIECE = 2**20
"""Bytes that are sent at a time, each within the time of an attempt."""


class HTTPConfig(Section):
    """Options of both ends."""

    token: str | None = option(
        None,
        check=lambda value: '' if _is_token(value) else f'at least {SHORTEST_TOKEN} visible ASCII characters',
        doc=f'secret that all roles share; by default the environment variable {TOKEN}',
    )
    max_payload_bytes: int = option(
        2**30, range='[1024, inf)', unit='bytes', doc='size of the largest payload'
    )


def token_of(cfg: Mapping[str, Any]) -> str:
    """Returns the token of the options or of the environment; an empty text if there is none.

    Raises:
        ConfigError: If the one of the environment is too short.
    """
    if cfg.get('token'):
        return str(cfg['token'])
    token = os.environ.get(TOKEN, '')
    if token and not _is_token(token):
        raise ConfigError(
            f'the token has {len(token)} characters, or some that are not visible ASCII',
            where=TOKEN,
            remedy=f'Use at least {SHORTEST_TOKEN}, such as: openssl rand -hex 16',
        )
    return token


def _is_token(value: Any) -> bool:
    is_text = isinstance(value, str) and value.isascii() and value.isprintable()
    return is_text and len(value) >= SHORTEST_TOKEN and ' ' not in value


def parse_address(address: str) -> tuple[str, int]:
    """Returns host and port of ``http://host:port`` or ``host:port``.

    Raises:
        ConfigError: If it is neither.
    """
    try:
        parts = urlsplit(address if '://' in address else f'http://{address}')
        extra = parts.path.strip('/') or parts.query or parts.fragment or parts.username
        if parts.scheme == 'http' and parts.hostname and parts.port and not extra:
            return parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        pass
    raise ConfigError(
        'bad address of a coordinator',
        where='address',
        got=shown_address(address),
        expected="'http://host:port'",
        remedy=f'A token belongs in the variable {TOKEN}.' if '@' in str(address) else '',
    )


def url_of(host: str, port: int) -> str:
    """Returns the address of a host and a port."""
    return f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'


def to_line(envelope: Envelope) -> bytes:
    """Returns a message as one line of JSON."""
    return json.dumps(strict_json.to_tagged(encode(envelope)), allow_nan=False).encode('ascii') + b'\n'


def from_line(line: bytes) -> Envelope:
    """Returns the message that ``to_line`` wrote.

    Raises:
        MessageError: If it has other fields than its kind, or values of other types.
        ValueError: If it is not JSON; or ``TypeError``, ``RecursionError`` or ``OverflowError``.
    """
    return decode(strict_json.from_tagged(strict_json.loads(line, 'MANIFEST')))


# the coordinator's end


class _Requests(BaseHTTPRequestHandler):
    """Reads the requests of one connection and writes their answers; the token is checked before a body is read."""

    protocol_version = default_request_version = 'HTTP/1.1'
    timeout = IDLE_SECONDS
    wbufsize = 2**16
    disable_nagle_algorithm = True
    server: _Listener

    def do_POST(self) -> None:
        """Answers a message."""
        of = self.server.of
        given = self.headers.get('Authorization', '').encode('utf-8', 'replace')
        length, payload = self._number('Content-Length'), self._number(PAYLOAD_HEADER, '0')
        if not hmac.compare_digest(given, f'Bearer {of.token}'.encode()):
            remedy = f'Set the same token for all roles: the option token, or the variable {TOKEN}.'
            self._refuse(HTTPStatus.UNAUTHORIZED, 'the token is missing or wrong', remedy)
        elif not 0 <= payload <= length:
            self._refuse(HTTPStatus.BAD_REQUEST, 'the length of the message, or of its payload, is not given')
        elif payload > of.most_payload or length - payload > of.most_message:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, 'the message, or its payload, is too large')
        else:
            line = self.rfile.read(length - payload)
            data = np.empty(payload, np.uint8)
            if len(line) + self.rfile.readinto(data.data) < length:
                self.close_connection = True  # it was cut
                return
            self._write(*of.serve(line, data))

    def _number(self, header: str, default: str = '') -> int:
        """Returns the number in a header that occurs once; -1 if there is none."""
        found = self.headers.get_all(header, [default])
        return int(found[0]) if len(found) == 1 and found[0].isdecimal() and len(found[0]) < 20 else -1

    def _refuse(self, status: HTTPStatus, message: str, remedy: str = '') -> None:
        """Refuses a request and ends the connection; of its body, a message is read, so that the answer arrives."""
        self.close_connection = True
        length = self._number('Content-Length')
        if 0 < length <= self.server.of.most_message:
            self.rfile.read(length)
        self._write(status, refused_line(message, remedy))

    def _write(self, status: HTTPStatus, line: bytes, payload: Sequence[Any] = ()) -> None:
        self.send_response_only(status)
        self.send_header(PROTOCOL_HEADER, str(PROTOCOL))
        size = sum(map(len, payload))
        self.send_header('Content-Length', str(len(line) + size))
        self.send_header(PAYLOAD_HEADER, str(size))
        if self.close_connection:
            self.send_header('Connection', 'close')
        self.end_headers()
        for piece in (line, *payload):
            self.wfile.write(piece)

    def log_message(self, format: str, *args: Any) -> None:
        """Writes to the log."""
        logger.debug(format, *args)


def refused_line(message: str, remedy: str = '', fatal: bool = True) -> bytes:
    """Returns the JSON of a refusal, on one line."""
    return to_line(Envelope('', 0, Refused(message[:MAX_TEXT], remedy[:MAX_TEXT], fatal)))


class _Listener(ThreadingTCPServer):
    """Accepts connections and gives each a thread, until it is closed; those beyond ``most`` are closed at once."""

    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128

    def __init__(self, of: HTTPServer, place: tuple[str, int], most: int) -> None:
        self.of = of
        self._most = most
        self._open = dict[Any, threading.Thread]()
        self.address_family = socket.AF_INET6 if ':' in place[0] else socket.AF_INET
        super().__init__(place, _Requests)
        accept = partial(self.serve_forever, 0.05)
        self._acceptor = threading.Thread(target=accept, name='rlframe-http', daemon=True)
        self._acceptor.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) >= self._most:
            self.shutdown_request(request)
            return
        given = request, client_address
        thread = threading.Thread(target=self.process_request_thread, args=given, daemon=True)
        self._open[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug('a connection was cut', exc_info=True)

    def close(self) -> None:
        """Ends all connections and threads; may be called twice."""
        self.shutdown()
        self._acceptor.join()
        self.server_close()
        still_open = list(self._open.items())
        for connection, _ in still_open:
            with suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)
        for _, thread in still_open:
            thread.join(IDLE_SECONDS)


class ServerConfig(HTTPConfig):
    """Options of ``HTTPServer``."""

    host: str = option(
        '127.0.0.1', reaches='network', harmless=lambda value: value in LOCAL, doc='address to listen on'
    )
    port: int = option(0, range='[0, 65535]', doc='port to listen on; 0 takes a free one')
    max_workers: int = option(64, range='[1, 1000]', doc='number of workers that may be connected')
    max_body: int = option(
        2**20, range='[1024, 8388608]', unit='bytes', doc='size of the largest message, without its payload'
    )


class HTTPServer(Server):
    """Takes messages and their arrays over HTTP from all who have the token.

    Without a token, it makes one, which only the workers get that this process starts.
    """

    _cfg: ServerConfig

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._host = self._cfg.host
        given = token_of(self._cfg)
        self._is_given = given != ''
        self.token = given or secrets.token_hex(16)
        """What ``Authorization: Bearer`` must say."""
        self.most_message, self.most_payload = self._cfg.max_body, self._cfg.max_payload_bytes
        """Bytes of the largest message and of the largest payload."""
        self._listener: _Listener | None = None

    def start(self, handler: Handler) -> None:
        """Opens the port, and begins to answer.

        Raises:
            ConfigError: If the address is in use or not one of this machine.
        """
        super().start(handler)
        host, port = self._host, self._cfg.port
        try:
            self._listener = _Listener(self, (host, port), 4 * self._cfg.max_workers + 16)
        except (OSError, UnicodeError) as error:
            number = getattr(error, 'errno', None) or 0
            raise ConfigError(
                f'cannot listen on {host}:{port}: {os.strerror(number) if number > 0 else error}',
                where='port' if number == errno.EADDRINUSE else 'host',
                remedy='End the program that uses the port, or choose another port; port=0 takes a free one.',
            ) from error

    @property
    def address(self) -> str:
        assert self._listener is not None, 'the server has not started'
        host = socket.gethostname() if self._host in ('0.0.0.0', '::') else self._host
        return url_of(host, self._listener.server_address[1])

    def check_joinable(self) -> None:
        if not self._is_given:
            raise ConfigError(
                'workers that join need a token, and there is none',
                where='parallel.coordinator.transport',
                remedy=f'For all roles: export {TOKEN}=$(openssl rand -hex 16)',
            )

    def worker_options(self) -> dict[str, Any]:
        return {'token': self.token, 'max_payload_bytes': self._cfg.max_payload_bytes}

    def connect(self, cfg: Mapping[str, Any] | None = None) -> Transport:
        return HTTPTransport({**self.worker_options(), **(cfg or {})}, self.address)

    def close(self) -> None:
        super().close()
        if self._listener is not None:
            self._listener.close()

    def pack(self, reply: Reply) -> list[Any] | None:
        """Returns the bytes of a payload in pieces, which are views of its arrays."""
        return None if reply.payload is None else packed(reply.payload, self._cfg.max_payload_bytes)

    def serve(self, line: bytes, data: Array) -> tuple[HTTPStatus, bytes, Sequence[Any]]:
        """Returns status, message and pieces of the payload of the answer to a message and its payload, uint8 [bytes]."""
        try:
            envelope = from_line(line)
        except MessageError as error:
            return HTTPStatus.BAD_REQUEST, refused_line(said(error), error.remedy), ()
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            is_ours = isinstance(error, LimitExceededError | strict_json.JSONRefusedError)
            why = f'the message is not JSON: {error}' if is_ours else 'the message is not JSON'
            return HTTPStatus.BAD_REQUEST, refused_line(why), ()
        try:
            reply = self.answer(envelope, lambda: unpack(data) if envelope.has_payload else None)
        except OSError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, refused_line(str(error), fatal=False), ()
        sent = Envelope('', envelope.seq, reply.message, reply.payload is not None)
        return HTTPStatus.OK, to_line(sent), reply.payload or ()


def packed(payload: Any, most: int) -> list[Any]:
    """Returns the bytes of a payload in pieces.

    Raises:
        PayloadError: If it has more bytes than it may have, or something that cannot be sent.
    """
    chunks = pack(payload)
    nbytes = sum(map(len, chunks))
    if nbytes > most:
        raise PayloadError(
            f'the payload has {nbytes:,} bytes, but max_payload_bytes is {most:,}',
            remedy='Send smaller parts, or raise max_payload_bytes everywhere.',
        )
    return chunks


# a worker's end


@TRANSPORT_REGISTRY.register('flask_fs')
class HTTPTransport(Transport):
    """Sends messages and their arrays over HTTP to a coordinator at ``http://host:port``."""

    _cfg: HTTPConfig
    server_cls: Any = HTTPServer

    def __init__(self, cfg: Mapping[str, Any] | None, address: str) -> None:
        host, port = parse_address(address)
        super().__init__(cfg, url_of(host, port))
        self._headers = {'Authorization': f'Bearer {token_of(self._cfg)}'}
        self._place = (host, port)
        self._idle = list[HTTPConnection]()

    def pack(self, envelope: Envelope, payload: Any) -> Sequence[Any]:
        """Returns the bytes of the payload in pieces, which are views of its arrays."""
        chunks = [] if payload is None else packed(payload, self._cfg.max_payload_bytes)
        starts = [(memoryview(chunk), start) for chunk in chunks for start in range(0, len(chunk), PIECE)]
        return [chunk[start : start + PIECE] for chunk, start in starts]

    def carry(self, envelope: Envelope, packed: Sequence[Any], seconds: float) -> Reply:
        """Sends an envelope once and returns the reply.

        Raises:
            RequestRefusedError: If what answers is no coordinator, or one with another protocol.
            OSError: If no answer came, or the coordinator is busy.
        """
        wait = min(seconds, PAYLOAD_SECONDS if packed else ATTEMPT_SECONDS)
        connection = self._connection(wait)
        try:
            status, line, data = self._posted(connection, [to_line(envelope), *packed])
            reply = from_line(line)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError) or not isinstance(error, HTTPException | ValueError | TypeError):
                raise
            raise RequestRefusedError(
                f'what answers there is no coordinator of this rlframe: {type(error).__name__}: {error}',
                where=self._where,
                remedy='Check the address, and install the same version of rlframe everywhere.',
            ) from error
        self._idle.append(connection)
        if self._closed.is_set():
            self.close()
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise ConnectionError(f'the coordinator is busy: {vars(reply.message)}')
        return Reply(reply.message, unpack(data) if reply.has_payload else None)

    def close(self) -> None:
        super().close()
        while self._idle:
            self._idle.pop().close()

    def _connection(self, wait: float) -> HTTPConnection:
        """Returns an idle connection, or a new one; if the coordinator has closed it, the request is repeated."""
        with suppress(IndexError):
            connection = self._idle.pop()
            connection.timeout = wait
            if connection.sock is not None:
                connection.sock.settimeout(wait)
            return connection
        return HTTPConnection(*self._place, timeout=wait)

    def _posted(self, connection: HTTPConnection, body: Sequence[Any]) -> tuple[int, bytes, Array]:
        """Sends a message and its payload; returns status, message and payload of the answer."""
        sizes = {'Content-Length': str(sum(map(len, body))), PAYLOAD_HEADER: str(sum(map(len, body[1:])))}
        connection.request('POST', '/message', body, {**self._headers, **sizes})
        answer = connection.getresponse()
        if (protocol := answer.headers.get(PROTOCOL_HEADER)) != str(PROTOCOL):
            raise ValueError(f'it answers {answer.status} {answer.reason}, with protocol {protocol}')
        length, size = (int(answer.headers.get(name, 0)) for name in ('Content-Length', PAYLOAD_HEADER))
        if not 0 <= size <= min(length, self._cfg.max_payload_bytes) or length - size > MOST_ANSWER:
            raise ValueError(f'{length} bytes, {size} of them payload')
        line = answer.read(length - size)
        data = np.empty(size, np.uint8)
        if len(line) + answer.readinto(data.data) < length:
            raise ConnectionError('the connection was cut')
        return answer.status, line, data
