"""Serves the report on a run while it goes on, to browsers on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, TextIO
from urllib.parse import unquote

from rlframe.analysis.page import document, report_body
from rlframe.analysis.run_files import CONFIG, RunFiles, is_run, nearest_run, not_a_run, state_of
from rlframe.errors import ConfigError, RLFrameError
from rlframe.run.metrics import METRICS
from rlframe.run.run_folder import LOG
from rlframe.safety.plain_text import printable_lines

HOST = '127.0.0.1'
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'"
)
SCRIPT = """'use strict';
const page = document.getElementById('page');
let seen = '';
async function look() {
  try {
    const answer = await fetch('/state?' + encodeURIComponent(seen), {cache: 'no-store'});
    const state = await answer.json();
    if (state.version !== seen) {
      const open = [...document.querySelectorAll('details[open]')].map(each => each.id);
      page.innerHTML = state.body;
      seen = state.version;
      open.forEach(id => document.getElementById(id)?.setAttribute('open', ''));
    }
    document.getElementById('live').textContent = state.note;
  } catch (error) {
    document.getElementById('live').textContent = 'rlframe watch has ended: this page is no longer updated';
  }
  setTimeout(look, 3000);
}
look();
"""
"""Looks at the run every 3 s, and replaces the content of the page when the run has written something."""


class Watched:
    """The state of a run that may not have begun.

    Args:
        folder: Its folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._version, self._body = '', ''
        self._run: RunFiles | None = None

    def state(self, seen: str = '') -> dict[str, str]:
        """Returns the page's content and its version, without content if the browser has that version.

        Args:
            seen: The version that the browser shows.
        """
        with self._lock:
            version = self._newest()
            if version != self._version:
                self._version, self._body = version, self._content()
            note = 'live' if state_of(self._folder) == 'running' else 'the run has ended: this page is final'
            if self._run is None:
                note = 'waiting for the run to begin'
            body = '' if seen == version else f'<p class="note" id="live"></p>{self._body}'
            return {'version': version, 'body': body, 'note': note}

    def _newest(self) -> str:
        """Returns sizes and times of the files that the page is made of, and whether the run goes on."""
        found = []
        for name in (CONFIG, METRICS, LOG, 'ckpt'):
            try:
                facts = (self._folder / name).stat()
                found.append(f'{facts.st_size}-{facts.st_mtime_ns}')
            except OSError:
                found.append('none')
        return ' '.join([*found, state_of(self._folder)])

    def _content(self) -> str:
        if not (self._folder / CONFIG).is_file():
            hint = f'<p>{escape(nearest_run(self._folder))}</p>'
            return f'<h1>{escape(self._folder.name)}</h1><p>It has written nothing yet.</p>{hint}'
        try:
            if self._run is None:
                self._run = RunFiles(self._folder)
            self._run.metrics.update()
            return report_body(self._run, with_films=False)
        except RLFrameError as error:
            return f'<h1>{escape(self._folder.name)}</h1><p>{escape(str(error))}</p>'


def watch(folder: str | Path, port: int = 0, out: TextIO | None = None) -> None:
    """Serves the live page of a run until Ctrl-C.

    Args:
        folder: The run folder, which need not exist yet.
        port: Port on 127.0.0.1; 0: a free one.
        out: Where to print the address.

    Raises:
        ConfigError: If the port is invalid or in use, or the folder exists and is no run.
    """
    path = Path(folder)
    if not 0 <= port < 2**16:
        raise ConfigError('bad value', where='--port', got=port, expected='an int in [0, 65535]')
    if path.exists() and not path.is_dir():
        raise not_a_run(path)
    try:
        server = make_server(path, port)
    except OSError as error:
        raise ConfigError(f'cannot listen on port {port}: {error.strerror}', where='--port') from error
    with server:
        waiting = '' if is_run(path) else f'; {path} has not begun yet.{nearest_run(path)}'
        if out is not None:
            out.write(f'http://{HOST}:{server.server_address[1]} (Ctrl-C ends it){waiting}\n')
            out.flush()
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def make_server(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """Returns a server of the live page of a run, on 127.0.0.1 only.

    Args:
        folder: The run folder, which need not exist yet.
        port: Port; 0: a free one.

    Raises:
        OSError: If the port is in use.
    """
    watched = Watched(folder)
    pages: dict[str, Callable[[str], tuple[str, str]]] = {
        '/': lambda _: ('text/html', _page(folder)),
        '/live.js': lambda _: ('text/javascript', SCRIPT),
        '/state': lambda seen: ('application/json', json.dumps(watched.state(seen))),
    }

    class Handler(_Handler):
        answers = pages

    server = ThreadingHTTPServer((HOST, port), Handler)
    server.daemon_threads = True
    return server


def _page(folder: Path) -> str:
    body = '<p class="note" id="live">loading</p>'
    return document(body, f'{folder.name} (live)', POLICY, '<script src="/live.js" defer></script>')


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of the known paths; every other method gets 501."""

    answers: dict[str, Callable[[str], tuple[str, str]]]
    """Path to a function that takes what follows the ``?`` and returns a media type and a text."""
    protocol_version = 'HTTP/1.1'
    timeout = 30

    def do_GET(self) -> None:
        """Answers a request."""
        port = self.connection.getsockname()[1]
        if self.headers.get('Host', '') not in (f'{HOST}:{port}', f'localhost:{port}'):
            # the name of another site may lead to this machine (DNS rebinding)
            self._send(HTTPStatus.FORBIDDEN, 'text/plain', 'this page is for this machine only')
            return
        path, _, query = self.path.partition('?')
        answer = self.answers.get(path)
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, 'text/plain', 'no such page')
        else:
            self._send(HTTPStatus.OK, *answer(unquote(query)))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        data = printable_lines(text).encode()
        self.send_response(status)
        for name, value in {
            'Content-Type': f'{kind}; charset=utf-8',
            'Content-Length': str(len(data)),
            'Content-Security-Policy': f"{POLICY}; frame-ancestors 'none'",
            'X-Content-Type-Options': 'nosniff',
            'Cross-Origin-Resource-Policy': 'same-origin',
            'Referrer-Policy': 'no-referrer',
            'Cache-Control': 'no-store',
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        """Returns the name in the header ``Server``."""
        return 'rlframe'

    def log_message(self, format: str, *args: Any) -> None:
        """Writes nothing: the terminal is the user's."""
