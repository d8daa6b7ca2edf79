"""The transport with HTTP and a shared folder: who may connect, what errors say, and what is left behind."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transports import Coordinator, collected, join, joined, serving, with_faults

from rlframe.errors import (
    ConfigError,
    CoordinatorLostError,
    ExperimentDirError,
    MissingDependencyError,
    NotJoinedError,
    RequestRefusedError,
    RLFrameError,
)
from rlframe.parallel.transport import flask_fs_folder, flask_fs_http
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply
from rlframe.parallel.transport.flask_fs import FlaskFSServer, FlaskFSTransport
from rlframe.parallel.transport.flask_fs_folder import SECRET as SECRET_FILE
from rlframe.parallel.transport.flask_fs_http import (
    PROTOCOL_HEADER,
    TOKEN,
    parse_address,
)
from rlframe.utils.secrets import shown_address

SECRET = 'a-token-that-nobody-knows'
KEPT = {'.lock', SECRET_FILE}
"""Files of a folder in which no payload waits."""


def serve(folder: Path, handler: Any = None, **more: Any) -> Any:
    return serving('flask_fs', folder, handler or Coordinator(), **more)


def client(address: str, folder: Path, **more: Any) -> FlaskFSTransport:
    return FlaskFSTransport({'path_data': str(folder / 'data'), 'timeout': 20.0, **more}, address)


def refusal_of(transport: FlaskFSTransport, message: m.Message | None = None) -> RLFrameError:
    with pytest.raises(RLFrameError) as caught:
        transport.request(message or join())
    transport.close()
    return caught.value


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)


# who may connect


@pytest.mark.parametrize('host', ['0.0.0.0', 'example.com'])
def test_other_addresses_need_a_token(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = {'path_data': str(tmp_path), 'host': host}
    with pytest.raises(ConfigError, match='there is no token'):
        FlaskFSServer(cfg)
    FlaskFSServer({**cfg, 'token': SECRET})
    compiled = FlaskFSServer.resolve_config({**cfg, 'token': SECRET})
    monkeypatch.setenv(TOKEN, SECRET)
    FlaskFSServer(cfg)
    monkeypatch.delenv(TOKEN)
    FlaskFSServer(compiled)


@pytest.mark.parametrize('token', ['short', 'with spaces in the middle'])
def test_bad_token_is_refused_and_not_shown(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match='token'):
        FlaskFSServer({'path_data': str(tmp_path), 'token': token})
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(ConfigError) as caught:
        FlaskFSServer({'path_data': str(tmp_path)})
    assert caught.value.where == TOKEN and token not in str(caught.value)


def test_token_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator()
    with serve(tmp_path, coordinator, token=SECRET) as server:
        for token in (None, 'another-token-of-someone'):
            error = refusal_of(client(server.address, tmp_path, token=token))
            assert isinstance(error, RequestRefusedError) and error.is_fatal
            assert (
                'token is missing or wrong' in str(error) and TOKEN in str(error) and SECRET not in str(error)
            )
        monkeypatch.setenv(TOKEN, SECRET)
        with closing(client(server.address, tmp_path)) as transport:
            transport.request(join())
    assert coordinator.joins == ['collector']


def test_worker_may_see_the_same_folder_by_another_path(tmp_path: Path) -> None:
    (tmp_path / 'mount').symlink_to(tmp_path)
    with serve(tmp_path) as server, closing(client(server.address, tmp_path / 'mount')) as transport:
        transport.request(join())
        transport.request(collected(0), {'a': np.zeros(3)})


# what answers


@pytest.mark.parametrize(
    'address', ['', 'host', 'https://host:1', 'http://host:99999', 'http://h:1/x', 'http://u@h:1', 'http://[::1', 3]
)  # fmt: skip
def test_bad_address_is_refused(address: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='bad address'):
        client(address, tmp_path)


def test_address_may_lack_the_scheme() -> None:
    assert parse_address('host:80') == parse_address('http://host:80/') == ('host', 80)
    assert parse_address('[::1]:80') == ('::1', 80)


@contextmanager
def answering(data: bytes | None) -> Iterator[str]:
    """A server that reads a request and sends these bytes to everyone; none: it keeps silent."""
    with socket.create_server(('127.0.0.1', 0)) as listening:
        opened: list[socket.socket] = []

        def work() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                opened.append(connection)
                if data is not None:
                    connection.recv(65536)
                    connection.sendall(data)
                    # a close with unread bytes would reset the connection
                    connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield f'http://127.0.0.1:{listening.getsockname()[1]}'
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in opened:
                connection.close()


def http(body: bytes, *headers: str) -> bytes:
    lines = ['HTTP/1.1 200 OK', f'Content-Length: {len(body)}', *headers, '', '']
    return '\r\n'.join(lines).encode() + body


STRANGERS = {
    'garbage': (b'SSH-2.0-OpenSSH_9.6\r\n', 'does not speak HTTP'),
    'a page': (http(b'<html>'), 'its answer is 200 OK'),
    'another protocol': (
        http(b'{}', f'{PROTOCOL_HEADER}: 2'),
        'version 2 of the messages, and this rlframe 1',
    ),
    'no JSON': (http(b'<html>', f'{PROTOCOL_HEADER}: 1'), 'a bad message'),
    'no message': (http(b'{}', f'{PROTOCOL_HEADER}: 1'), 'a bad message'),
}


@pytest.mark.parametrize('name', STRANGERS)
def test_stranger_at_the_address_is_told_from_a_coordinator_at_once(name: str, tmp_path: Path) -> None:
    data, words = STRANGERS[name]
    with answering(data) as address:
        error = refusal_of(client(address, tmp_path))
    assert isinstance(error, RequestRefusedError) and error.is_fatal
    assert address in str(error) and 'no coordinator of this rlframe' in str(error) and words in str(error)


@pytest.mark.parametrize('data', [None, http(b'x' * 10)[:-5]], ids=['silence', 'half an answer'])
def test_server_that_does_not_answer_is_lost_in_time(data: bytes | None, tmp_path: Path) -> None:
    with answering(data) as address:
        error = refusal_of(client(address, tmp_path, timeout=0.3))
    assert isinstance(error, CoordinatorLostError)
    assert ('timed out' if data is None else 'cut') in str(error)


# what is in use


def test_host_that_is_not_this_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, 'Name or service not known')

    for _ in range(2):
        with (
            pytest.raises(ConfigError, match='cannot listen'),
            serve(tmp_path, host='203.0.113.1', token=SECRET),
        ):
            pass
        monkeypatch.setattr(socket, 'create_server', unknown)
    assert os.listdir(tmp_path) == []


def test_refused_folder_leaves_the_port_free(tmp_path: Path) -> None:
    (tmp_path / 'data').mkdir()
    (tmp_path / 'data').chmod(0o777)
    with socket.create_server(('127.0.0.1', 0)) as found:
        port = found.getsockname()[1]
    threads = set(threading.enumerate())
    with pytest.raises(ExperimentDirError, match='others could replace'), serve(tmp_path, port=port):
        pass
    assert set(threading.enumerate()) == threads
    socket.create_server(('127.0.0.1', port)).close()


# what is left


def test_nothing_is_left_after_close(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with serve(
        tmp_path, Coordinator(lambda e, p: Reply(m.Weights('main', 1, 1), {'a': np.zeros(3)}))
    ) as server:
        port = int(server.address.rpartition(':')[2])
        with joined(server) as transport:
            transport.request(collected(0), {'a': np.zeros(3)})
            assert set(os.listdir(tmp_path / 'data')) == KEPT
            with_faults(transport, ['lose_reply'] * 100)
            with pytest.raises(CoordinatorLostError):
                transport.request(collected(1), {'a': np.zeros(3)}, timeout=0.1)
    assert set(threading.enumerate()) == threads
    assert os.listdir(tmp_path) == []
    socket.create_server(('127.0.0.1', port)).close()


def test_reply_that_nobody_fetched_is_deleted_with_the_next_request(tmp_path: Path) -> None:
    reply = Reply(m.Weights('main', 1, 1), {'a': np.zeros(3)})
    with serve(tmp_path, Coordinator(lambda e, p: reply)) as server, joined(server) as transport:
        carry = transport.carry

        def lost(*args: Any) -> None:
            transport._payload = lambda *_: None
            carry(*args)
            raise TimeoutError('the reply was lost')

        transport.carry = lost
        with pytest.raises(CoordinatorLostError):
            transport.request(m.AskWeights('main', -1), timeout=0.05)
        assert any(name.endswith('-down.safetensors') for name in os.listdir(tmp_path / 'data'))
        del transport._payload, transport.carry
        transport.request(m.AskWeights('main', -1))
        assert set(os.listdir(tmp_path / 'data')) == KEPT


def test_reply_for_which_there_is_no_room_is_refused_and_the_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device')

    def reply(envelope: Any, payload: Any) -> Reply:
        return Reply(m.Weights('main', 1, 1), {'a': np.zeros(envelope.message.newer_than)})

    limits = {'max_payload_bytes': 4096}
    with serve(tmp_path, Coordinator(reply), **limits) as server, joined(server) as transport:
        with monkeypatch.context() as patch:
            patch.setattr(flask_fs_folder, 'write_file', full)
            with pytest.raises(RequestRefusedError, match='No space left') as caught:
                transport.request(m.AskWeights('main', 200))
        assert not caught.value.is_fatal
        with pytest.raises(RequestRefusedError, match='max_payload') as caught:
            transport.request(m.AskWeights('main', 1000))
        assert caught.value.is_fatal
        assert len(transport.request(m.AskWeights('main', 3)).payload['a']) == 3


# connections


def test_connection_is_kept_for_the_next_request(tmp_path: Path) -> None:
    with serve(tmp_path) as server, joined(server) as transport:
        for _ in range(5):
            transport.request(m.AskTask())
        assert transport._pool.num_connections == 1


def test_connections_that_hold_back_their_request_keep_no_worker_out_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flask_fs_http, 'IDLE_SECONDS', 1)
    coordinator = Coordinator()
    with serve(tmp_path, coordinator, max_workers=1) as server:
        host, port = server.address.removeprefix('http://').split(':')
        halves = [socket.create_connection((host, int(port))) for _ in range(30)]  # 20 at once is the most
        for half in halves:
            half.sendall(b'POST /message HTTP/1.1\r\nContent-Le')
        with closing(client(server.address, tmp_path)) as transport:
            transport.request(join())
        for half in halves:
            half.close()
    assert coordinator.joins == ['collector']


def test_close_ends_a_request_that_waits_for_the_network(tmp_path: Path) -> None:
    with answering(None) as address, ThreadPoolExecutor(1) as pool:
        transport = client(address, tmp_path, timeout=3600.0)
        asked = pool.submit(transport.request, join())
        while not transport._pool.num_connections:
            assert not asked.done()
        transport.close()
        with pytest.raises(CoordinatorLostError, match='closed'):
            asked.result(30)


def test_worker_finds_a_coordinator_that_was_restarted(tmp_path: Path) -> None:
    first, second = Coordinator(), Coordinator()
    cfg = {'path_data': str(tmp_path / 'data')}
    server = FlaskFSServer(cfg)
    server.start(first)
    port = int(server.address.rpartition(':')[2])
    with joined(server) as transport:
        server.close()
        with pytest.raises(CoordinatorLostError):
            transport.request(collected(0), {'a': np.zeros(3)}, timeout=0.1)
        again = FlaskFSServer({**cfg, 'port': port})
        again.start(second)
        with pytest.raises(NotJoinedError):
            transport.request(collected(0), {'a': np.zeros(3)})
        transport.request(join())
        transport.request(collected(0, rows=2), {'a': np.zeros(3)})
        again.close()
    assert sum(first.rows.values()) == 0 and sum(second.rows.values()) == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('package', ['flask', 'waitress'])
def test_missing_package_is_named_and_nothing_is_opened(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split('.')[0] == package] + [package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=rf'needs {package}.*rlframe\[http\]'), serve(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    'address', ['http://{}@h:1', 'http://user:{}@h:1', '{}@h:1', 'http://h:1/{}', 'http://h:1/?a={}', 'http://us/er:{}@h:1']
)  # fmt: skip
def test_an_address_with_a_token_is_refused_and_never_shown(address: str, tmp_path: Path) -> None:
    address = address.format(SECRET)
    with pytest.raises(ConfigError) as caught:
        client(address, tmp_path)
    shown = ''.join(traceback.format_exception(caught.value, chain=True)).splitlines()
    assert SECRET not in '\n'.join(line for line in shown if not line.startswith('  '))
    assert SECRET not in repr(vars(caught.value)) and SECRET not in shown_address(address)
