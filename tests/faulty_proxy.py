"""A proxy between workers and their coordinator that loses and repeats messages."""

from __future__ import annotations

import http.client
import itertools
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

FAULTS = ('request lost', 'reply lost', 'repeated', 'late')
"""What happens to messages: lost on the way there or back; sent twice; and sent again after the next one."""


class FaultyProxy:
    """Passes on HTTP requests, some of them wrongly.

    Args:
        address: Address of the coordinator.
        every: One of so many requests meets a fault; each fault in turn.
    """

    def __init__(self, address: str, every: int = 3) -> None:
        host, _, port = address.removeprefix('http://').partition(':')
        self._to, self._every = (host, int(port)), every
        self._count, self._lock = itertools.count(1), threading.Lock()
        self._late: list[tuple[bytes, dict[str, str]]] = []
        self.faults = dict.fromkeys(FAULTS, 0)
        """How often each fault happened."""
        self._server = ThreadingHTTPServer(('127.0.0.1', 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Its own address, for workers."""
        return f'http://127.0.0.1:{self._server.server_address[1]}'

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers['Content-Length']))
                self.close_connection = True
                proxy._pass_on(self, body, dict(self.headers))

            def log_message(self, *given: Any) -> None: ...

        return Handler

    def _pass_on(self, request: BaseHTTPRequestHandler, body: bytes, headers: dict[str, str]) -> None:
        fault = self._next_fault(b'"Join"' in body)
        if fault == 'request lost':
            return
        late, self._late = self._late, []
        try:
            for early in late:
                self._send(*early)
            answer = self._send(body, headers)
            if fault == 'repeated':
                answer = self._send(body, headers)
        except OSError:  # there is no coordinator: the worker is told nothing
            return
        if fault == 'late':
            self._late.append((body, headers))
        if fault != 'reply lost':
            status, data, given = answer
            request.send_response(status)
            for name, value in (*given, ('Connection', 'close')):
                request.send_header(name, value)
            request.end_headers()
            with suppress(OSError):  # the worker has gone
                request.wfile.write(data)

    def _next_fault(self, is_join: bool) -> str:
        with self._lock:
            number, rest = divmod(next(self._count), self._every)
            if rest or is_join:
                return ''
            fault = FAULTS[number % len(FAULTS)]
            self.faults[fault] += 1
            return fault

    def _send(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, list[tuple[str, str]]]:
        connection = http.client.HTTPConnection(*self._to, timeout=30)
        try:
            connection.request('POST', '/message', body, headers)
            answer = connection.getresponse()
            data = answer.read()
            kept = ('content-type', 'content-length', 'rlframe-protocol')
            return answer.status, data, [(k, v) for k, v in answer.getheaders() if k.lower() in kept]
        finally:
            connection.close()
