"""The transport over HTTP: who may connect, what errors say, and what is left behind."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from fault_envs import wait_until
from transports import Coordinator, collected, join, joined, serving, with_faults

from rlframe.errors import (
    ConfigError,
    CoordinatorLostError,
    PayloadError,
    RequestRefusedError,
    RLFrameError,
)
from rlframe.parallel.transport import http as over_http
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply
from rlframe.parallel.transport.http import (
    PROTOCOL_HEADER,
    TOKEN,
    HTTPServer,
    HTTPTransport,
    parse_address,
)

SECRET = 'a-token-that-nobody-knows'


def serve(handler: Any = None, **more: Any) -> Any:
    return serving('flask_fs', handler or Coordinator(), **more)


def client(address: str, **more: Any) -> HTTPTransport:
    return HTTPTransport(more, address)


def refusal_of(transport: HTTPTransport, **more: float) -> RLFrameError:
    with pytest.raises(RLFrameError) as caught:
        transport.request(join(), **more)
    transport.close()
    return caught.value


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)


# who may connect


@pytest.mark.parametrize('token', ['short', 'with spaces in the middle'])
def test_bad_token_is_refused_and_not_shown(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match='token'):
        HTTPServer({'token': token})
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(ConfigError) as caught:
        HTTPServer({})
    assert caught.value.where == TOKEN and token not in str(caught.value)


def test_token_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator()
    with serve(coordinator, token=SECRET) as server:
        for token in (None, 'another-token-of-someone'):
            error = refusal_of(client(server.address, token=token))
            assert isinstance(error, RequestRefusedError) and error.is_fatal
            assert (
                'token is missing or wrong' in str(error) and TOKEN in str(error) and SECRET not in str(error)
            )
        monkeypatch.setenv(TOKEN, SECRET)
        with closing(client(server.address)) as transport:
            transport.request(join())
    assert coordinator.joins == ['collector']


def test_server_without_a_token_makes_one_for_the_workers_that_its_process_starts() -> None:
    coordinator = Coordinator()
    with serve(coordinator) as server, joined(server, 'started'):
        assert isinstance(refusal_of(client(server.address)), RequestRefusedError)
        with closing(client(server.address, **server.worker_options())) as transport:
            transport.request(join('other'))
    assert coordinator.joins == ['started', 'other']


# what answers


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
    'garbage': (b'SSH-2.0-OpenSSH_9.6\r\n', 'BadStatusLine'),
    'a page': (http(b'<html>'), 'it answers 200 OK, with protocol None'),
    'another protocol': (http(b'{}', f'{PROTOCOL_HEADER}: 2'), 'with protocol 2'),
    'no message': (http(b'{}', f'{PROTOCOL_HEADER}: 1'), 'MessageError'),
}


@pytest.mark.parametrize('name', STRANGERS)
def test_stranger_at_the_address_is_told_from_a_coordinator_at_once(name: str) -> None:
    data, words = STRANGERS[name]
    with answering(data) as address:
        error = refusal_of(client(address))
    assert isinstance(error, RequestRefusedError) and error.is_fatal
    assert address in str(error) and words in str(error)


@pytest.mark.parametrize(
    'data', [None, http(b'x' * 10, f'{PROTOCOL_HEADER}: 1')[:-5]], ids=['silence', 'half an answer']
)
def test_server_that_does_not_answer_is_lost_in_time(data: bytes | None) -> None:
    with answering(data) as address:
        error = refusal_of(client(address), timeout=0.3)
    assert isinstance(error, CoordinatorLostError)
    assert ('timed out' if data is None else 'cut') in str(error)


# what is left


def test_nothing_is_left_after_close() -> None:
    threads = set(threading.enumerate())
    with serve(Coordinator(lambda e, p: Reply(m.Weights(1, 1), {'a': np.zeros(3)}))) as server:
        port = int(server.address.rpartition(':')[2])
        with joined(server) as transport:
            transport.request(collected(0), {'a': np.zeros(3)})
            with_faults(transport, ['lose_reply'] * 10**6)
            with pytest.raises(CoordinatorLostError):
                transport.request(collected(1), {'a': np.zeros(3)}, timeout=0.1)
    assert set(threading.enumerate()) == threads
    socket.create_server(('127.0.0.1', port)).close()


# payloads


def test_payload_that_is_too_large_is_refused_where_it_is_packed_and_the_worker_goes_on() -> None:
    def reply(envelope: Any, payload: Any) -> Reply:
        return Reply(m.Weights(1, 1), {'a': np.zeros(envelope.message.newer_than)})

    with serve(Coordinator(reply), max_payload_bytes=4096) as server, joined(server) as transport:
        with pytest.raises(RequestRefusedError, match='max_payload') as caught:
            transport.request(m.AskWeights('main', 1000))
        assert caught.value.is_fatal
        with pytest.raises(PayloadError, match=r'has 8,\d{3} bytes, but max_payload_bytes is 4,096'):
            transport.request(collected(0), {'a': np.zeros(1000)})
        assert len(transport.request(m.AskWeights('main', 3)).payload['a']) == 3


# connections


def test_connection_is_kept_for_the_next_request() -> None:
    with serve() as server, joined(server) as transport:
        for _ in range(5):
            transport.request(m.AskTask())
        assert len(transport._idle) == len(server._listener._open) == 1


def test_connections_that_hold_back_their_request_keep_no_worker_out_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(over_http._Requests, 'timeout', 1)
    coordinator = Coordinator()
    with serve(coordinator, max_workers=1) as server:
        host, port = server.address.removeprefix('http://').split(':')
        halves = [socket.create_connection((host, int(port))) for _ in range(30)]  # 20 at once is the most
        for half in halves:
            half.sendall(b'POST /message HTTP/1.1\r\nContent-Le')
        with closing(client(server.address, **server.worker_options())) as transport:
            transport.request(join())
        for half in halves:
            half.close()
    assert coordinator.joins == ['collector']


def test_close_ends_a_request_that_waits_for_the_network() -> None:
    with answering(None) as address, ThreadPoolExecutor(1) as pool:
        transport = client(address)
        asked = pool.submit(transport.request, join(), timeout=3600.0)
        wait_until(lambda: transport._next == [1], 10)
        transport.close()
        with pytest.raises(CoordinatorLostError, match='closed'):
            asked.result(30)


def test_worker_finds_a_coordinator_that_was_restarted() -> None:
    first, second = Coordinator(), Coordinator()
    server = HTTPServer({'token': SECRET})
    server.start(first)
    port = int(server.address.rpartition(':')[2])
    with joined(server) as transport:
        server.close()
        with pytest.raises(CoordinatorLostError):
            transport.request(collected(0), {'a': np.zeros(3)}, timeout=0.1)
        with serve(second, token=SECRET, port=port):
            transport.request(join())
            transport.request(collected(0, rows=2), {'a': np.zeros(3)})
    assert sum(first.rows.values()) == 0 and sum(second.rows.values()) == 2


def test_host_that_is_not_this_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match='host: cannot listen'), serve(host='203.0.113.1', token=SECRET):
        pass


def test_a_server_on_all_addresses_is_reached_by_the_name_of_the_machine() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip('no IPv6 here')
    with (
        serve(host='::') as server,
        socket.create_connection(('127.0.0.1', int(server.address.rpartition(':')[2]))),
    ):
        pass
