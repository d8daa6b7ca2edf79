"""An HTTP server that gives bodies to a function and sends what it returns: Flask behind waitress."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rlframe import _version
from rlframe.errors import ConfigError, MissingDependencyError
from rlframe.parallel.transport.base import PROTOCOL, Envelope, encode
from rlframe.parallel.transport.messages import MAX_TEXT, Refused
from rlframe.utils.field import REQUIRED, Field
from rlframe.utils.secrets import shown_address

if TYPE_CHECKING:
    from flask import Flask

TOKEN = 'RLFRAME_TOKEN'
"""Environment variable with the token, for those who want it in no file."""
SHORTEST_TOKEN = 16
PROTOCOL_HEADER = 'RLFrame-Protocol'
"""Header of every answer of a coordinator, with the version of its messages."""
MESSAGE_PATH, HEALTH_PATH = '/message', '/health'
JSON_TYPE = 'application/json'
SAME_FOLDER = 'Both must see the same folder: check path_data here and in the config of the coordinator.'

SHARED_FIELDS: dict[str, Any] = dict(
    path_data=Field(
        REQUIRED,
        type=str,
        reaches='file',
        doc='folder for arrays on their way, which the coordinator and all workers see, under any path',
    ),
    token=Field(
        None,
        type=str,
        check=lambda value: '' if _is_token(value) else f'at least {SHORTEST_TOKEN} visible ASCII characters',
        doc=f'secret that all roles share; by default the environment variable {TOKEN}',
    ),
    max_payload_bytes=Field(2**30, range='[1024, inf)', unit='bytes', doc='size of the largest payload'),
    max_folder_bytes=Field(
        4 * 2**30, range='[1024, inf)', unit='bytes', doc='size of all payloads that wait in the folder'
    ),
)


def token_of(cfg: Mapping[str, Any]) -> str:
    """Returns the token of the options or of the environment; an empty text if there is none.

    Raises:
        ConfigError: If the one of the environment is too short.
    """
    if cfg['token']:
        return str(cfg['token'])
    token = os.environ.get(TOKEN, '')
    if token and not _is_token(token):
        raise ConfigError(
            f'the token has {len(token)} characters, or some that are not visible ASCII',
            where=TOKEN,
            remedy=f'Use at least {SHORTEST_TOKEN}, such as: openssl rand -hex 16',
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    if host == 'localhost':
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


def _is_token(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) >= SHORTEST_TOKEN
        and value.isascii()
        and value.isprintable()
        and ' ' not in value
    )


logger = logging.getLogger('rlframe.transport')

Serve = Callable[[bytes], tuple[int, bytes]]
"""Returns status and JSON for the body of a message."""
PROBE_SECONDS = 1.0
REQUEST_SECONDS = 5.0
"""Seconds within which a connection has to send a whole request."""
KEEPING = ('200', '409', '503')
"""Statuses of a message's answer that keep the connection open; all others may be those of someone without the token."""


def refused_body(message: str, remedy: str = '', fatal: bool = True) -> bytes:
    """Returns the JSON of a refusal, on one line."""
    refused = Refused(message[:MAX_TEXT], remedy[:MAX_TEXT], fatal)
    return json.dumps(encode(Envelope('', 0, refused))).encode('ascii') + b'\n'


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that is bound but does not listen yet; port 0 takes a free one.

    Raises:
        ConfigError: If the address is in use or not one of this machine; with who answers there, if that is known.
    """
    try:
        family, kind, proto, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f'no such host: {error}', where='host', got=host, expected='an address') from error
    opened = socket.socket(family, kind, proto)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(1)  # two sockets may be bound to a port, but only one listens
    except OSError as error:
        opened.close()
        raise ConfigError(
            f'cannot listen on {host}:{port}: {error.strerror}{_who(host, port)}',
            where='port',
            remedy='End that program, or choose another port; port=0 takes a free one.',
        ) from error
    return opened


def _who(host: str, port: int) -> str:
    """Returns what answers on a port, in words; empty if that is unknown."""
    connection = HTTPConnection(host, port, timeout=PROBE_SECONDS)
    try:
        connection.request('GET', HEALTH_PATH)
        answer = connection.getresponse()
        if answer.getheader(PROTOCOL_HEADER) is None:
            return '; another HTTP server answers there'
        run = json.loads(answer.read(1000))['run']
        return f'; the coordinator of the run {str(run)[:64]!r} answers there'
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ''
    finally:
        connection.close()


def make_app(serve: Serve, token: str, run: str, max_body: int) -> Flask:
    """Returns the Flask application.

    Args:
        serve: Answers the bodies of messages.
        token: What ``Authorization: Bearer`` must say; empty if anyone on this machine may ask.
        run: Id of the run, which ``GET /health`` tells anyone.
        max_body: Bytes of the largest body.

    Raises:
        MissingDependencyError: If Flask is not installed.
    """
    try:
        import flask
        from werkzeug.exceptions import HTTPException as HTTPError
    except ImportError as error:
        raise _missing(error) from error
    app = flask.Flask('rlframe.transport', static_folder=None)
    app.config['MAX_CONTENT_LENGTH'] = max_body

    def response(status: int, body: bytes) -> flask.Response:
        made = flask.Response(body, status, content_type=JSON_TYPE)
        made.headers[PROTOCOL_HEADER] = str(PROTOCOL)
        return made

    @app.before_request
    def check() -> flask.Response | None:
        given = flask.request.headers.get('Authorization', '').encode('utf-8', 'replace')
        is_open = not token or flask.request.path == HEALTH_PATH
        if is_open or hmac.compare_digest(given, f'Bearer {token}'.encode()):
            return None
        remedy = 'Set the same token for all roles: the option token, or the variable RLFRAME_TOKEN.'
        return response(401, refused_body('the token is missing or wrong', remedy))

    @app.post(MESSAGE_PATH)
    def message() -> flask.Response:
        if flask.request.mimetype != JSON_TYPE:
            return response(415, refused_body(f'a message has the content type {JSON_TYPE}'))
        return response(*serve(flask.request.get_data(cache=False)))

    @app.get(HEALTH_PATH)
    def health() -> flask.Response:
        facts = {'rlframe': _version.__version__, 'protocol': PROTOCOL, 'run': run}
        return response(200, json.dumps(facts).encode('ascii') + b'\n')

    @app.errorhandler(HTTPError)
    def refuse(error: HTTPError) -> flask.Response:
        return response(error.code or 400, refused_body(error.name))

    return app


class HTTPServer:
    """Serves an application in threads until it is closed.

    Args:
        app: The application.
        listening: The socket.
        threads: Threads that answer.
        connections: Connections at the same time.
        max_body: Bytes of the largest body; larger ones are not read.
        request_seconds: Seconds within which a connection has to send a whole request.

    Raises:
        MissingDependencyError: If waitress is not installed.
    """

    def __init__(
        self,
        app: Flask,
        listening: socket.socket,
        threads: int,
        connections: int,
        max_body: int,
        *,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        try:
            from waitress import wasyncore
            from waitress.server import create_server
        except ImportError as error:
            raise _missing(error) from error
        self._loop: Any = wasyncore.loop
        self._close_all: Any = wasyncore.close_all
        self._map: dict[int, Any] = {}
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)  # a request that waits its turn is normal
        self._server: Any = create_server(
            app,
            map=self._map,
            sockets=[listening],
            threads=threads,
            connection_limit=connections,
            max_request_body_size=max_body,
            ident=None,
            _start=False,
        )
        self._server.channel_class = _channel_class()
        self._server.accept_connections()
        self._most, self._request_seconds = connections, request_seconds
        self._swept_at = monotonic()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name='rlframe-http', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections and threads; may be called twice."""
        if self._is_closing:
            return
        self._is_closing = True
        with suppress(OSError):
            self._server.pull_trigger()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._is_closing:
            self._loop(timeout=min(1.0, self._request_seconds), use_poll=True, map=self._map, count=1)
            is_full = len(self._map) >= self._most
            if is_full or monotonic() - self._swept_at >= self._request_seconds / 4:
                self._sweep(is_full)
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=5)
        self._close_all(self._map)

    def _sweep(self, is_full: bool) -> None:
        """Closes connections whose request does not come: those past their deadline, and the oldest if no other fits."""
        self._swept_at = now = monotonic()
        channels = self._server.active_channels.values()
        waiting = [one for one in channels if one.waits_since is not None and not one.requests]
        waiting.sort(key=lambda one: one.waits_since)
        for i, one in enumerate(waiting):
            if now - one.waits_since > self._request_seconds or (is_full and i == 0):
                one.handle_close()


def _channel_class() -> type:
    """Returns waitress's connection, with errors that are JSON as ours are; it knows since when a request is missing."""
    from waitress.channel import HTTPChannel
    from waitress.task import ErrorTask, WSGITask

    class Error:
        def __init__(self, error: Any) -> None:
            self._error = error

        def to_response(self, ident: Any = None) -> tuple[str, list[tuple[str, str]], bytes]:
            error = self._error
            headers = [('Content-Type', JSON_TYPE), (PROTOCOL_HEADER, str(PROTOCOL))]
            # an unknown transfer encoding (501) is the sender's mistake as well
            status = '400 Bad Request' if error.code == 501 else f'{error.code} {error.reason}'
            return status, headers, refused_body(error.reason)

    class JSONErrorTask(ErrorTask):  # type: ignore[misc]  # waitress has no types
        def execute(self) -> None:
            self.request.error = Error(self.request.error)
            super().execute()

    class Task(WSGITask):  # type: ignore[misc]  # waitress has no types
        def build_response_header(self) -> bytes:
            if self.request.path != MESSAGE_PATH or not self.status.startswith(KEEPING):
                self.set_close_on_finish()
            header: bytes = super().build_response_header()
            return header

    class Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
        task_class, error_task_class = Task, JSONErrorTask

        def __init__(self, *given: Any, **named: Any) -> None:
            self.waits_since: float | None = monotonic()
            super().__init__(*given, **named)

        def received(self, data: bytes) -> bool:
            is_taken: bool = super().received(data)
            if self.request is None:
                self.waits_since = None
            elif self.waits_since is None:
                self.waits_since = monotonic()
            return is_taken

    return Channel


def _missing(error: ImportError) -> MissingDependencyError:
    return MissingDependencyError(
        f'the transport flask_fs needs {error.name}', remedy="pip install 'rlframe[http]'"
    )
