"""Hundreds of malformed requests: each is refused, none of them is handled, and nothing is left of them."""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from transports import MESSAGES, REPLIES, Coordinator, collected, join, joined, serving

from rlframe.parallel.transport.base import Envelope, Reply, Transport, encode
from rlframe.parallel.transport.flask_fs_http import PROTOCOL_HEADER, parse_address

TOKEN = 'the-token-of-the-fuzz-test'
COUNT = 260
MAX_BODY = 2**16
PATHS = [
    '../../etc/passwd',
    '/etc/passwd',
    'a/b',
    '..',
    '.',
    '~',
    'x\0y',
    'C:\\x',
    '%2e%2e%2f',
    'a' * 300,
    '${HOME}',
    '\ud800',
    '../data',
]
JUNK: list[Any] = [
    None,
    True,
    -1,
    0.5,
    1e308,
    2**53 + 1,
    10**400,
    '',
    'x',
    [],
    {},
    [[]],
    {'a': {}},
    'é' * 50,
    *PATHS,
]

Fuzzer = Callable[[random.Random, dict[str, Any]], bytes]
"""Returns a request as bytes, made from a valid message."""


def request(body: bytes, method: str = 'POST', path: str = '/message', **headers: str) -> bytes:
    given = {
        'Host': 'x',
        'Content-Type': 'application/json',
        'Authorization': f'Bearer {TOKEN}',
        'Content-Length': str(len(body)),
        **{name.replace('_', '-'): value for name, value in headers.items()},
    }
    lines = [
        f'{method} {path} HTTP/1.1',
        *(f'{name}: {value}' for name, value in given.items() if value),
        '',
        '',
    ]
    return '\r\n'.join(lines).encode('utf-8') + body


def text(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def cut(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(text(tree)[: rng.randrange(len(text(tree)))])


def binary(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(rng.randbytes(rng.randrange(2000)))


def flipped(rng: random.Random, tree: dict[str, Any]) -> bytes:
    body = bytearray(text(tree))
    body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return request(bytes(body) + b'!')


def wrong_head(rng: random.Random, tree: dict[str, Any]) -> bytes:
    name = rng.choice(['kind', 'sender', 'seq', 'session', 'unanswered', 'protocol', 'fields', 'has_payload'])
    junk = [value for value in JUNK if value not in ('', 'x', [], {}, True) or name in ('kind', 'protocol')]
    return request(text({**tree, name: rng.choice(junk)}))


def wrong_field(rng: random.Random, tree: dict[str, Any]) -> bytes:
    fields = dict(tree['fields'])
    if not fields:
        return extra_field(rng, tree)
    fields[rng.choice(list(fields))] = rng.choice(
        [[[[]]] * 3, {'a': [object.__name__] * 2, 'b': 'x' * 5000}, ['x' * 5000]]
    )
    return request(text({**tree, 'fields': fields}))


def extra_field(rng: random.Random, tree: dict[str, Any]) -> bytes:
    if rng.random() < 0.5:
        return request(text({**tree, rng.choice(PATHS): 1}))
    return request(text({**tree, 'fields': {**tree['fields'], rng.choice(PATHS): 1}}))


def missing_field(rng: random.Random, tree: dict[str, Any]) -> bytes:
    gone = rng.choice(list(tree))
    return request(text({name: value for name, value in tree.items() if name != gone}))


def unknown_kind(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(text({**tree, 'kind': rng.choice(['Message', '__class__', 'Envelope', 'join', *PATHS])}))


def answer(rng: random.Random, tree: dict[str, Any]) -> bytes:
    """A reply in place of a request."""
    kind = type(rng.choice(REPLIES)).__name__
    return request(text({**tree, 'kind': kind, 'fields': {}, 'sender': 'nobody'}))


def twice(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(text(tree)[:-1] + b', "' + rng.choice(list(tree)).encode() + b'": 1}')


def not_finite(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(text({**tree, 'seq': float(rng.choice(['nan', 'inf', '-inf']))}))


def tagged(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(text({**tree, 'seq': {'__float__': rng.choice(['x', [], None, {}, '1e999', 'nan'])}}))


def nested(rng: random.Random, tree: dict[str, Any]) -> bytes:
    depth = rng.choice([50, 500, 5000, 15000])
    opening, closing = rng.choice([(b'[', b']'), (b'{"a":', b'}')])
    return request((opening * depth + b'1' + closing * depth)[:MAX_BODY])


def long_body(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(b' ' * rng.choice([MAX_BODY + 1, 2 * MAX_BODY]))


def long_chunks(rng: random.Random, tree: dict[str, Any]) -> bytes:
    chunk = b'8000\r\n' + b' ' * 0x8000 + b'\r\n'
    return request(b'', Transfer_Encoding='chunked', Content_Length='') + chunk * 4 + b'0\r\n\r\n'


def bad_chunks(rng: random.Random, tree: dict[str, Any]) -> bytes:
    head = request(
        b'', Transfer_Encoding=rng.choice(['chunked', 'gzip', 'chunked, chunked']), Content_Length=''
    )
    return head + rng.choice([b'zz\r\nab\r\n0\r\n\r\n', b'-1\r\nab\r\n0\r\n\r\n', b'2\r\nabcd\r\n0\r\n\r\n'])


def wrong_length(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(b'', Content_Length=rng.choice(['-1', 'x', '1e3', '9' * 30, '0x10', '+5']))


def wrong_token(rng: random.Random, tree: dict[str, Any]) -> bytes:
    token = rng.choice([TOKEN[:-1], TOKEN + 'x', TOKEN.upper(), '', 'é' * 9, '\x00'])
    return request(text(tree), Authorization=rng.choice(['Bearer ', 'Basic ', '']) + token)


def wrong_type(rng: random.Random, tree: dict[str, Any]) -> bytes:
    kinds = ['text/plain', 'multipart/form-data; boundary=x', 'application/x-www-form-urlencoded', 'é', ' ']
    return request(text(tree), Content_Type=rng.choice(kinds))


def wrong_path(rng: random.Random, tree: dict[str, Any]) -> bytes:
    paths = [
        '/',
        '/../../etc/passwd',
        '/message/',
        '/message/..',
        '/%2e%2e/x',
        '/static/x',
        '*',
        '/health/x',
        '/é',
    ]
    return request(text(tree), path=rng.choice(paths))


def wrong_method(rng: random.Random, tree: dict[str, Any]) -> bytes:
    return request(text(tree), method=rng.choice(['GET', 'PUT', 'DELETE', 'TRACE', 'PATCH', 'BREW', 'post']))


def no_http(rng: random.Random, tree: dict[str, Any]) -> bytes:
    lines = [
        b'\x16\x03\x01\x02\x00',
        b'GET',
        b'GET / HTTP/9.9',
        b'POST /message',
        b' ' * 50,
        b'A: B',
        b'POST  HTTP/1.1',
    ]
    return rng.choice(lines) + b'\r\n\r\n'


def bad_headers(rng: random.Random, tree: dict[str, Any]) -> bytes:
    line = rng.choice(
        [
            b'A\x00: b',
            b'no colon',
            b'A : b',
            b'X: ' + b'y' * 300_000,
            b'Content-Length: 1\r\nContent-Length: 2',
        ]
    )
    return request(text({})).replace(b'Host: x', line)


def of_nobody(rng: random.Random, tree: dict[str, Any]) -> bytes:
    """A message of a worker that never joined, with a file that does not exist."""
    return request(
        text({**tree, 'sender': rng.choice(['nobody', 'collector.1']), 'session': f'{rng.random()}'})
    )


def stolen(rng: random.Random, tree: dict[str, Any]) -> bytes:
    """A late copy of an answered request of a worker that joined."""
    return request(text({**tree, 'seq': 0, 'has_payload': tree['kind'] == 'Collected'}))


def other_join(rng: random.Random, tree: dict[str, Any]) -> bytes:
    """A worker that does not prove that it sees the folder."""
    sent = encode(Envelope('', rng.randrange(9), join(f'w{rng.random()}'), False, f's{rng.randrange(200)}'))
    return request(text(sent))


FUZZERS: list[Fuzzer] = [
    cut, binary, flipped, wrong_head, wrong_field, extra_field, missing_field, unknown_kind, answer, twice, not_finite,
    tagged, nested, long_body, long_chunks, bad_chunks, wrong_length, wrong_token, wrong_type, wrong_path, wrong_method,
    no_http, bad_headers, of_nobody, stolen, other_join,
]  # fmt: skip


def answered(place: tuple[str, int], data: bytes) -> tuple[int, bytes]:
    """Sends bytes and returns status and body; a server that closes the connection unread gives status 0."""
    with socket.create_connection(place, timeout=20) as connection:
        got = b''
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                got += piece
        except TimeoutError:
            raise
        except OSError:
            pass  # the server closed the connection without reading all of it
    head, _, body = got.partition(b'\r\n\r\n')
    if not got:
        return 0, b''
    status = int(head.split()[1])
    # what waitress refuses by itself is plain text, such as an unknown transfer encoding (501)
    is_ours = PROTOCOL_HEADER.lower().encode() in head.lower()
    assert is_ours or status in (400, 413, 431, 501), (data[:300], head)
    return status, body if is_ours else b''


def test_malformed_requests_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    rng, coordinator, statuses = random.Random(0), Coordinator(), Counter[int]()
    with (
        serving('flask_fs', tmp_path, coordinator, token=TOKEN, max_body=MAX_BODY) as server,
        joined(server) as transport,
    ):
        place = parse_address(server.address)
        use(transport)
        handled = coordinator.handled.copy()
        for i in range(COUNT):
            if i == COUNT // 4:
                gc.collect()
                tracemalloc.start()
            fuzzer = FUZZERS[i % len(FUZZERS)]
            data = fuzzer(
                rng,
                encode(Envelope('collector.1', 10**6 + i, rng.choice(MESSAGES), False, transport._session)),
            )  # type: ignore[attr-defined]
            status, body = answered(place, data)
            statuses[status] += 1
            assert status < 500 or status == 501, (fuzzer, data[:300], body)
            assert not body or (body.count(b'\n') == 1 and json.loads(body) is not None), (fuzzer, body)
            assert b'Traceback' not in body and TOKEN.encode() not in body
            assert status != 200 or refused(body), (fuzzer, data[:500], body)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert coordinator.handled == handled
        use(transport)
    assert grown < 2 * 2**20, f'{grown} bytes'
    assert os.listdir(tmp_path) == []
    assert {0, 400, 401, 404, 405, 413, 415} <= statuses.keys() | {0}


def use(transport: Transport) -> None:
    """Sends a request with a payload."""
    assert isinstance(transport.request(collected(0), {'a': np.zeros(3)}), Reply)


def refused(body: bytes) -> bool:
    return json.loads(body)['kind'] == 'Refused'
