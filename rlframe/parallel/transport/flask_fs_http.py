"""An HTTP server that gives bodies to a function and sends what it returns: Flask behind waitress."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rlframe.errors import ConfigError, MissingDependencyError
from rlframe.parallel.transport.base import PROTOCOL, Envelope, encode
from rlframe.parallel.transport.messages import MAX_TEXT, Refused
from rlframe.utils.field import REQUIRED, Section, option
from rlframe.utils.secrets import shown_address

if TYPE_CHECKING:
    from flask import Flask

TOKEN = 'RLFRAME_TOKEN'
"""Environment variable with the token, for those who want it in no file."""
SHORTEST_TOKEN = 16
PROTOCOL_HEADER = 'RLFrame-Protocol'
"""Header of every answer of a coordinator, with the version of its messages."""
FOLDER_HEADER = 'RLFrame-Folder'
"""Header of a request to join, with the secret of the shared folder."""
MESSAGE_PATH = '/message'
JSON_TYPE = 'application/json'
BUSY = 503
"""Status of an answer that says that the request may be repeated."""
SAME_FOLDER = 'Both must see the same folder: check path_data here and in the config of the coordinator.'


class SharedFolderConfig(Section):
    """Options of both ends."""

    path_data: str = option(
        REQUIRED,
        reaches='file',
        doc='folder for arrays on their way, which the coordinator and all workers see, under any path',
    )
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

Serve = Callable[[bytes, str], tuple[int, bytes]]
"""Returns status and JSON for the body of a message and the secret of the folder that came with it."""
IDLE_SECONDS = 10
"""Seconds after which a connection is closed over which nothing comes."""


def refused_body(message: str, remedy: str = '', fatal: bool = True) -> bytes:
    """Returns the JSON of a refusal, on one line."""
    refused = Refused(message[:MAX_TEXT], remedy[:MAX_TEXT], fatal)
    return json.dumps(encode(Envelope('', 0, refused))).encode('ascii') + b'\n'


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; port 0 takes a free one.

    Raises:
        ConfigError: If the address is in use or not one of this machine.
    """
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        number = getattr(error, 'errno', None) or 0
        raise ConfigError(
            f'cannot listen on {host}:{port}: {os.strerror(number) if number > 0 else error}',
            where='port' if number == errno.EADDRINUSE else 'host',
            remedy='End the program that uses the port, or choose another port; port=0 takes a free one.',
        ) from error


def make_app(serve: Serve, token: str, max_body: int) -> Flask:
    """Returns the Flask application.

    Args:
        serve: Answers the bodies of messages.
        token: What ``Authorization: Bearer`` must say; empty if anyone on this machine may ask.
        max_body: Bytes of the largest body.

    Raises:
        MissingDependencyError: If Flask is not installed.
    """
    try:
        import flask
        from werkzeug.exceptions import HTTPException
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
        if not token or hmac.compare_digest(given, f'Bearer {token}'.encode()):
            return None
        remedy = 'Set the same token for all roles: the option token, or the variable RLFRAME_TOKEN.'
        return response(401, refused_body('the token is missing or wrong', remedy))

    @app.post(MESSAGE_PATH)
    def message() -> flask.Response:
        if flask.request.mimetype != JSON_TYPE:
            return response(415, refused_body(f'a message has the content type {JSON_TYPE}'))
        secret = flask.request.headers.get(FOLDER_HEADER, '')
        return response(*serve(flask.request.get_data(cache=False), secret))

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> flask.Response:
        return response(error.code or 400, refused_body(error.name))

    return app


class HTTPServer:
    """Serves an application by waitress, in threads, until it is closed.

    Args:
        app: The application.
        listening: The socket.
        threads: Threads that answer.
        connections: Connections at the same time.
        max_body: Bytes of the largest body; larger ones are not read.

    Raises:
        MissingDependencyError: If waitress is not installed.
    """

    def __init__(
        self, app: Flask, listening: socket.socket, threads: int, connections: int, max_body: int
    ) -> None:
        try:
            from waitress import wasyncore
            from waitress.server import create_server
        except ImportError as error:
            raise _missing(error) from error
        self._asyncore: Any = wasyncore
        self._map: dict[int, Any] = {}
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)  # a request that waits its turn is normal
        self._server: Any = create_server(
            app,
            map=self._map,
            sockets=[listening],
            threads=threads,
            connection_limit=connections,
            max_request_body_size=max_body,
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=IDLE_SECONDS // 2 or 1,
            ident=None,
        )
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name='rlframe-http', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections and threads; may be called twice."""
        self._is_closing = True
        if self._thread.is_alive():
            with suppress(OSError):
                self._server.pull_trigger()
            self._thread.join(10.0)

    def _run(self) -> None:
        while not self._is_closing:
            self._asyncore.loop(timeout=1.0, use_poll=True, map=self._map, count=1)
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=5)
        self._asyncore.close_all(self._map)


def _missing(error: ImportError) -> MissingDependencyError:
    return MissingDependencyError(
        f'the transport flask_fs needs {error.name}', remedy="pip install 'rlframe[http]'"
    )
