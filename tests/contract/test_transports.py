"""What every registered transport must do.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_transports.py``.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from transports import (
    MESSAGES,
    ORDERS,
    REPLIES,
    TRANSPORTS,
    Coordinator,
    collected,
    join,
    joined,
    same,
    serving,
    with_faults,
)

from rlframe.data.timestep import Batch
from rlframe.errors import (
    ConfigError,
    CoordinatorLostError,
    MessageError,
    NotJoinedError,
    RequestRefusedError,
)
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Envelope, Reply
from rlframe.parallel.transport.messages import Message
from rlframe.utils.serialize import struct_dtype

pytestmark = pytest.mark.parametrize('kind', TRANSPORTS)

FAULTS = ('', 'lose_request', 'lose_reply', 'double', 'late')


def test_every_message_arrives_as_it_was_sent(kind: str) -> None:
    seen: list[Message] = []

    def reply(envelope: Envelope, payload: Any) -> Reply:
        seen.append(envelope.message)
        return Reply(REPLIES[len(seen) % len(REPLIES)])

    with serving(kind, Coordinator(reply)) as server, joined(server) as transport:
        replies = [transport.request(message).message for message in MESSAGES]
    assert same(seen, MESSAGES)
    assert same(replies, [REPLIES[(i + 1) % len(REPLIES)] for i in range(len(MESSAGES))])


def structured() -> np.ndarray:
    array = np.zeros(3, struct_dtype({'a': (np.dtype(np.float32), (2,)), 'b': (np.dtype(np.int64), ())}))
    array['a'], array['b'] = np.arange(6).reshape(3, 2), np.arange(3)
    return array


NUMPY = ['bool', *(f'{kind}{bits}' for kind in ('int', 'uint') for bits in (8, 16, 32, 64)), 'float16', 'float32',
         'float64', 'complex64', '<U5', 'S5']  # fmt: skip
TORCH = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
         torch.float32, torch.float64, torch.complex64]  # fmt: skip
PAYLOADS: dict[str, Any] = {
    'batch': Batch(
        obs=np.arange(12, dtype=np.float32).reshape(3, 4), more=Batch(t=torch.arange(3)), s=structured()
    ),
    'list of batches': [Batch(a=np.arange(i + 1)) for i in range(3)],
    'tree': {
        'w': torch.randn(3, 4),
        7: [1, 2.5, 'x', None, True, (np.ones((2, 0)), float('inf'))],
        'deep': {'a': {'b': []}},
    },
    'numpy': {name: np.array([[0, 1], [2, 3]]).astype(name) for name in NUMPY},
    'torch': {str(dtype): torch.tensor([[0, 1], [1, 0]]).to(dtype) for dtype in TORCH},
    'views': {'f': np.asfortranarray(np.arange(6).reshape(2, 3)), 't': torch.arange(6).reshape(2, 3).t()},
    'scalars': {'zero': np.float32(1.5), 'array': np.array(3), 'tensor': torch.tensor(2)},
    'empty': {},
    'number': 3,
}


def assert_equal(got: Any, expected: Any) -> None:
    if isinstance(expected, Batch):
        assert isinstance(got, Batch) and len(got) == len(expected)
        assert_equal(dict(got.items()), dict(expected.items()))
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for name, item in expected.items():
            assert_equal(got[name], item)
    elif isinstance(expected, list | tuple):
        assert type(got) is type(expected) and len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, torch.Tensor):
        assert got.dtype == expected.dtype and torch.equal(got, expected)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype and got.shape == expected.shape and (got == expected).all()
    else:
        assert got == expected


def test_payloads_arrive_equal_in_both_directions_and_can_be_written(kind: str) -> None:
    seen: list[Any] = []

    def reply(envelope: Envelope, got: Any) -> Reply:
        seen.append(got)
        return Reply(m.Weights(1, 1), got)

    with serving(kind, Coordinator(reply)) as server, joined(server) as transport:
        for part, (name, payload) in enumerate(PAYLOADS.items()):
            answer = transport.request(collected(part), payload).payload
            for got in (seen[-1], answer):
                assert_equal({name: got}, {name: payload})
        assert transport.request(collected(part + 1)).payload is None and seen[-1] is None
        transport.request(collected(part + 2), {'a': np.zeros(3), 't': torch.zeros(3)})
    seen[-1]['a'][:] = 1
    seen[-1]['t'].fill_(1)


def test_message_outside_its_schema_is_not_sent(kind: str) -> None:
    coordinator = Coordinator()
    bad: list[tuple[Message, str]] = [
        (m.LearnInfo('task', 1, {'loss': np.float32(0.5)}), r'LearnInfo\.info\.loss'),  # type: ignore[dict-item]
        (m.Finished('task', True, '', {'facts': {1: 2}}), r'Finished\.facts'),
        (m.Finished('task', True, '', {'facts': np.zeros(1)}), r'Finished\.facts'),
        (m.AskWeights('../x', 1), r'AskWeights\.policy'),
    ]
    with serving(kind, coordinator) as server, joined(server) as transport:
        for message, place in bad:
            with pytest.raises(MessageError, match=place):
                transport.request(message)
        with pytest.raises(MessageError, match='has no payload'):
            transport.request(m.AskTask(), {'a': np.zeros(3)})
        transport.request(m.AskTask())
    assert len(coordinator.handled) == 2


def test_every_request_is_handled_once_on_a_bad_network(kind: str) -> None:
    coordinator, count = Coordinator(), 30
    plan = [str(fault) for fault in np.random.default_rng(0).choice(FAULTS, 10 * count)]
    with serving(kind, coordinator) as server, joined(server) as transport:
        faulty = with_faults(transport, plan)
        replies = [transport.request(collected(i, rows=i), Batch(a=np.arange(i + 1))) for i in range(count)]
        faulty.deliver_late()
    assert [reply.message.version for reply in replies] == list(range(count))  # type: ignore[attr-defined]
    assert set(coordinator.handled.values()) == {1} and len(coordinator.handled) == count + 1
    assert sum(coordinator.rows.values()) == sum(range(count))


def test_join_that_is_repeated_admits_one_worker(kind: str) -> None:
    coordinator = Coordinator()
    with serving(kind, coordinator) as server:
        transport = server.connect()
        with_faults(transport, ['lose_reply', 'lose_reply', 'double', 'late'])
        reply = transport.request(join())
        transport.request(m.AskTask())
        transport.close()
    assert coordinator.joins == ['collector'] and reply.message.worker == 'collector.1'  # type: ignore[attr-defined]


def test_repeated_request_waits_for_the_first_one(kind: str) -> None:
    started, go_on = threading.Event(), threading.Event()

    def reply(envelope: Envelope, payload: Any) -> Reply:
        started.set()
        assert go_on.wait(30)
        return Reply(m.Taken(5, False, 0, {}))

    coordinator = Coordinator(reply)
    with serving(kind, coordinator) as server, joined(server) as transport:
        sent: list[tuple[Any, ...]] = []
        carry = transport.carry  # type: ignore[attr-defined]

        def noted(*args: Any) -> Reply:
            sent.append(args)
            return carry(*args)

        transport.carry = noted  # type: ignore[attr-defined]
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(transport.request, collected(0))
            assert started.wait(30)
            again = pool.submit(carry, *sent[0])
            go_on.set()
            assert first.result(30).message == again.result(30).message
    assert set(coordinator.handled.values()) == {1}


def test_workers_and_their_threads_do_not_disturb_each_other(kind: str) -> None:
    coordinator, workers, count = Coordinator(), 3, 12
    with serving(kind, coordinator) as server:

        def work(name: str) -> list[int]:
            with joined(server, name) as transport, ThreadPoolExecutor(1) as beats:
                told = beats.submit(
                    lambda: [transport.request(MESSAGES[0]).message for _ in range(count // 4)]
                )
                parts = [transport.request(collected(i, rows=2)).message.version for i in range(count)]  # type: ignore[attr-defined]
                assert told.result(60) == [ORDERS] * (count // 4)
            return parts

        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(work, [f'w{i}' for i in range(workers)]))
    assert parts == [list(range(count))] * workers
    assert set(coordinator.handled.values()) == {1}
    assert list(coordinator.rows.values()) == [2 * count] * workers


def test_worker_that_joins_again_over_its_connection_can_send_and_get_arrays(kind: str) -> None:
    """Its coordinator forgets the earlier worker of that name in the middle of the request to join."""
    data, seen, joins = {'x': np.arange(4.0)}, [], []

    def handler(envelope: Envelope, payload: Any) -> Reply:
        if isinstance(envelope.message, m.Join):
            server.forget(envelope.session)
            joins.append(f'worker.{len(joins)}')
            return Reply(m.Joined(joins[-1], 1.0))
        assert envelope.sender == joins[-1]
        seen.append(payload)
        return Reply(m.Weights(1, 1), data)

    with serving(kind, handler) as server, joined(server) as transport:
        for _ in range(2):
            reply = transport.request(collected(0), data)
            assert (reply.payload['x'] == data['x']).all()
            assert transport.request(join()).message.worker == joins[-1]  # type: ignore[attr-defined]
    assert len(joins) == 3 and all((payload['x'] == data['x']).all() for payload in seen)


def test_error_of_the_handler_is_told_to_the_worker_once(kind: str) -> None:
    calls = 0
    errors = [
        (MessageError('unknown task', remedy='Ask for another.'), False, 'unknown task. Ask for another.'),
        (MessageError('who is this?', remedy=m.REJOIN), False, f'who is this? {m.REJOIN}'),
        (ConfigError('another config', remedy='Copy it.'), True, 'another config. Copy it.'),
        (ZeroDivisionError('a bug'), True, 'ZeroDivisionError: a bug. See the log of the coordinator.'),
    ]

    def reply(envelope: Envelope, payload: Any) -> Reply:
        nonlocal calls
        calls += 1
        raise errors[calls - 1][0]

    with serving(kind, Coordinator(reply)) as server, joined(server) as transport:
        with_faults(transport, ['lose_reply', 'double'] * 4)
        for part, (_, is_fatal, words) in enumerate(errors):
            with pytest.raises(RequestRefusedError) as caught:
                transport.request(collected(part))
            assert caught.value.is_fatal == is_fatal and str(caught.value).endswith(words)
            assert isinstance(caught.value, NotJoinedError) == (m.REJOIN in words)
            assert server.address in str(caught.value)
    assert calls == 4


def test_reply_outside_its_schema_is_refused(kind: str) -> None:
    bad = m.Taken(pushed=-1, stop=False, version=0, settings={})
    refused = pytest.raises(RequestRefusedError, match=r'Taken\.pushed')
    with (
        serving(kind, Coordinator(lambda e, p: Reply(bad))) as server,
        joined(server) as transport,
        refused,
    ):
        transport.request(collected(0))


def test_request_to_a_server_that_ended_fails_in_time(kind: str) -> None:
    with serving(kind, Coordinator()) as server, joined(server) as transport:
        server.close()
        server.close()
        with pytest.raises(CoordinatorLostError) as caught:
            transport.request(m.AskTask(), timeout=0.2)
        assert caught.value.where == transport._where  # type: ignore[attr-defined]


def test_request_that_is_never_answered_fails_in_time_with_the_last_cause(kind: str) -> None:
    with serving(kind, Coordinator()) as server, joined(server) as transport:
        with_faults(transport, ['lose_request'] * 10**6)
        with pytest.raises(CoordinatorLostError, match='does not answer AskTask: the request was lost'):
            transport.request(m.AskTask(), timeout=0.05)


def test_close_ends_a_request_that_waits(kind: str) -> None:
    with serving(kind, Coordinator()) as server, joined(server) as transport:
        with_faults(transport, ['lose_request'] * 10**6)
        transport._first_pause = 1.0  # type: ignore[attr-defined]
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(transport.request, m.AskTask(), None, 3600.0)
            transport.close()
            transport.close()
            with pytest.raises(CoordinatorLostError, match='closed'):
                asked.result(30)
