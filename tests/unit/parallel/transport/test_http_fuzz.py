"""Hundreds of malformed requests: each is refused, none of them is handled, and nothing is left of them."""

from __future__ import annotations

import gc
import json
import random
import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from transports import MESSAGES, REPLIES, Coordinator, collected, joined, serving

from rlframe.errors import MessageError
from rlframe.parallel.transport.base import Envelope, Reply, Transport, encode
from rlframe.parallel.transport.http import parse_address
from rlframe.parallel.transport.messages import REJOIN, Join

pytestmark = pytest.mark.slow

TOKEN = 'the-token-of-the-fuzz-test'
COUNT = 120
MAX_BODY = 2**16
PATHS = ['../../etc/passwd', 'a/b', '..', '~', 'x\0y', 'C:\\x', '%2e%2e%2f', 'a' * 300, '${HOME}', '\ud800']
JUNK = [None, -1, 0.5, 1e308, 2**53 + 1, 10**400, [[]], {'a': {}}, 'é' * 50, *PATHS]
HEAD = ['kind', 'sender', 'seq', 'session', 'lane', 'protocol', 'fields', 'has_payload']
FIELDS = [[[[]]] * 3, {'a': ['object'] * 2, 'b': 'x' * 5000}, ['x' * 5000]]
KINDS = ['Message', '__class__', 'Envelope', 'join', *PATHS]
FLOATS = ['x', [], None, {}, '1e999', 'nan']
TOKENS = [TOKEN[:-1], TOKEN + 'x', TOKEN.upper(), '', 'é' * 9, '\x00']
LENGTHS = ['-1', 'x', '1e3', '9' * 30, '0x10', '+5']


def request(body: bytes, **headers: str) -> bytes:
    given = {
        'Host': 'x',
        'Authorization': f'Bearer {TOKEN}',
        'Content-Length': str(len(body)),
        **{name.replace('_', '-'): value for name, value in headers.items()},
    }
    fields = [f'{name}: {value}' for name, value in given.items() if value]
    return '\r\n'.join(['POST /message HTTP/1.1', *fields, '', '']).encode() + body


def text(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def flipped(rng: random.Random, tree: dict[str, Any]) -> bytes:
    body = bytearray(text(tree))
    body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return request(bytes(body) + b'!')


Fuzzer = Callable[[random.Random, dict[str, Any]], bytes]
"""Returns a request as bytes, made from a valid message."""
FUZZERS: list[Fuzzer] = [
    flipped,
    lambda rng, tree: request(text(tree)[: rng.randrange(len(text(tree)))]),
    lambda rng, tree: request(rng.randbytes(rng.randrange(2000))),
    lambda rng, tree: request(text({**tree, rng.choice(HEAD): rng.choice(JUNK)})),
    lambda rng, tree: request(
        text(
            {**tree, 'fields': {**tree['fields'], rng.choice(['rows', *tree['fields']]): rng.choice(FIELDS)}}
        )
    ),
    lambda rng, tree: request(text({**tree, 'fields': {**tree['fields'], rng.choice(PATHS): 1}})),
    lambda rng, tree: request(text({**tree, rng.choice(PATHS): 1})),
    lambda rng, tree: request(text(dict(rng.sample(sorted(tree.items()), len(tree) - 1)))),
    lambda rng, tree: request(text({**tree, 'kind': rng.choice(KINDS)})),
    lambda rng, tree: request(text({**tree, 'kind': type(rng.choice(REPLIES)).__name__, 'fields': {}})),
    lambda rng, tree: request(text(tree)[:-1] + b', "' + rng.choice(list(tree)).encode() + b'": 1}'),
    lambda rng, tree: request(text({**tree, 'seq': float(rng.choice(['nan', 'inf']))})),
    lambda rng, tree: request(text({**tree, 'seq': {'__float__': rng.choice(FLOATS)}})),
    lambda rng, tree: request((rng.choice([b'[', b'{"a":']) * rng.choice([50, 5000, 15000]))[:MAX_BODY]),
    lambda rng, tree: request(b' ' * rng.choice([MAX_BODY + 1, 2 * MAX_BODY])),
    lambda rng, tree: request(b'', Content_Length=rng.choice(LENGTHS)),
    lambda rng, tree: request(
        text(tree), Authorization=rng.choice(['Bearer ', 'Basic ', '']) + rng.choice(TOKENS)
    ),
    lambda rng, tree: request(text(tree), RLFrame_Payload=rng.choice(LENGTHS)),
    lambda rng, tree: b'\x16\x03\x01\x02\x00\r\n\r\n',
    # of a worker that never joined, and a late copy of an answered request of one that did
    lambda rng, tree: request(
        text({**tree, 'sender': rng.choice(['nobody', 'collector.1']), 'session': 'x'})
    ),
    lambda rng, tree: request(text({**tree, 'seq': 0, 'has_payload': tree['kind'] == 'Collected'})),
]


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
    return int(head.split()[1]), body


def test_malformed_requests_are_refused_and_leave_nothing() -> None:
    rng, coordinator, statuses = random.Random(0), Coordinator(), set[int]()
    sessions = list[str]()

    def handler(envelope: Envelope, payload: Any) -> Reply:
        if isinstance(envelope.message, Join) and not sessions:
            sessions.append(envelope.session)
        elif (envelope.sender, envelope.session) != ('collector.1', sessions[0]):
            raise MessageError('the coordinator does not know this worker', remedy=REJOIN)
        return coordinator(envelope, payload)

    with (
        serving('flask_fs', handler, token=TOKEN, max_body=MAX_BODY) as server,
        joined(server) as transport,
    ):
        place = parse_address(server.address)
        use(transport)
        handled = coordinator.handled.copy()
        for i in range(COUNT):
            if i == COUNT // 4:
                gc.collect()
                tracemalloc.start()
            envelope = Envelope('collector.1', 10**6 + i, rng.choice(MESSAGES), False, transport._session)  # type: ignore[attr-defined]
            data = FUZZERS[i % len(FUZZERS)](rng, encode(envelope))
            status, body = answered(place, data)
            statuses.add(status)
            assert status < 500 or status in (501, 505), (data[:500], body)
            assert b'Traceback' not in body and TOKEN.encode() not in body
            assert status != 200 or json.loads(body)['kind'] == 'Refused', (data[:500], body)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert coordinator.handled == handled
        use(transport)
    assert grown < 2**20, f'{grown} bytes'
    assert statuses >= {200, 400, 401, 413}


def use(transport: Transport) -> None:
    """Sends a request with a payload."""
    assert isinstance(transport.request(collected(0), {'a': np.zeros(3)}), Reply)
