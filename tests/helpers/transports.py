"""What tests of transports share: a coordinator that counts, one message of each kind, and faults on the way."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rlframe import __version__
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import Server
from rlframe.parallel.transport.base import Envelope, Reply, Transport
from rlframe.parallel.transport.messages import KINDS, Message
from rlframe.registry import TRANSPORT_REGISTRY, import_modules

import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
TRANSPORTS = [name for name in TRANSPORT_REGISTRY.names() if name != 'ray']
"""All but the one that only differs in its address; see tests/ray/test_ray_transport.py."""
ORDERS = m.Orders(stop=False, abandon=False, save=-1, reason='')
PLAIN = {'eps': 0.25, 'on': True, 'none': None, 'list': [1, 'two', {'three': 3.5}], 'nan': float('nan')}
MESSAGES: list[Message] = [
    m.Beat('task.1', 40),
    m.AskTask(),
    m.Collected('task.1', 0, 4, 4, 2, 3, PLAIN),
    m.Finished('task.1', True, '', PLAIN),
    m.AskWeights('main', -1),
    m.PutWeights('main', 1, 10),
    m.AskData('task.2', 10),
    m.LearnInfo('task.2', 10, {'loss': 0.5, 'nan': float('nan')}),
    m.PutState('checkpoint', 10),
    m.Farewell('the end', 400),
]
REPLIES: list[Message] = [
    m.Task('task.1', 'collect', ['main'], [True], 'buffer', 8, 0, -1, PLAIN),
    m.Wait(0.5, False, 'no data yet'),
    m.Taken(3, False, 2, PLAIN),
    m.Weights(2, 20),
    m.Data(64, 128),
    ORDERS,
]


def join(name: str = 'collector', version: str = __version__) -> m.Join:
    return m.Join('collector', name, version, 'fingerprint', 1, 'host')


def same(left: Any, right: Any) -> bool:
    """Whether two messages are equal, NaN included."""
    return repr(left) == repr(right)


class Coordinator:
    """A handler that admits everyone, notes what it handles, and answers as it is told.

    Args:
        reply: Returns the reply to a request; by default ``Taken`` with the rows of the message.
    """

    def __init__(self, reply: Callable[[Envelope, Any], Reply] | None = None) -> None:
        self.handled: Counter[tuple[str, int, int]] = Counter()
        self.rows: Counter[str] = Counter()
        self.joins: list[str] = []
        self._lock, self._reply = threading.Lock(), reply

    def __call__(self, envelope: Envelope, payload: Any) -> Reply:
        message = envelope.message
        with self._lock:
            self.handled[(envelope.session, envelope.lane, envelope.seq)] += 1
            if isinstance(message, m.Join):
                self.joins.append(message.name)
                return Reply(m.Joined(f'{message.name}.{len(self.joins)}', 1.0))
            if self._reply is not None:
                return self._reply(envelope, payload)
            if isinstance(message, m.Collected):
                self.rows[envelope.sender] += message.rows
                return Reply(m.Taken(message.rows, False, message.part, {}))
        return Reply(ORDERS)


def collected(part: int, rows: int = 1) -> m.Collected:
    return m.Collected('task', part, rows, rows, 0, 0, {})


def server_of(kind: str, **more: Any) -> Server:
    cls: Any = TRANSPORT_REGISTRY.get(kind)
    server: Server = cls.server_cls(more)
    return server


@contextmanager
def serving(kind: str, handler: Any, **more: Any) -> Iterator[Server]:
    server = server_of(kind, **more)
    try:
        server.start(handler)
        yield server
    finally:
        server.close()


@contextmanager
def joined(server: Server, name: str = 'collector', cfg: Any = None) -> Iterator[Transport]:
    transport = server.connect(cfg)
    try:
        transport.request(join(name))
        yield transport
    finally:
        transport.close()


class Faulty:
    """Carries envelopes as a bad network does.

    Args:
        carry: Carries an envelope once.
        plan: What happens to each attempt: ``'lose_request'``, ``'lose_reply'``, ``'double'``, ``'late'`` (a copy
            arrives after the next ones, too), or anything else for no fault; none at the end of the plan.
    """

    def __init__(self, carry: Callable[..., Reply], plan: Iterable[str]) -> None:
        self._carry, self._plan = carry, iter(plan)
        self._late: list[tuple[Envelope, Any]] = []
        self.late_replies: list[Message] = []

    def __call__(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        fault = next(self._plan, '')
        if fault == 'lose_request':
            raise ConnectionResetError('the request was lost')
        reply = self._carry(envelope, packed, seconds)
        if fault == 'lose_reply':
            raise TimeoutError('the reply was lost')
        if fault == 'double':
            return self._carry(envelope, packed, seconds)
        if fault == 'late':
            self._late.append((envelope, packed))
        else:
            self.deliver_late()
        return reply

    def deliver_late(self) -> None:
        """Delivers the copies that are still on the way."""
        while self._late:
            self.late_replies.append(self._carry(*self._late.pop(), 10.0).message)


def with_faults(transport: Any, plan: Iterable[str]) -> Faulty:
    """Puts faults on the way of all further messages, and repeats lost ones at once."""
    faulty = Faulty(transport.carry, plan)
    transport.carry, transport._first_pause = faulty, 0.0
    return faulty


assert {type(message).__name__ for message in (*MESSAGES, *REPLIES)} | {'Join', 'Joined', 'Refused'} == set(
    KINDS
)
