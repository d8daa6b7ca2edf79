"""Which replies a server keeps, and what becomes of those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from rlframe.errors import MessageError
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.parallel.transport.base import MOST_AT_ONCE, Envelope, Reply, decode, encode


def sent(seq: int, lane: int = 0) -> Envelope:
    return Envelope('w', seq, m.AskTask(), False, 's', lane)


class Asked:
    """A server, and the numbers of the requests that it handled."""

    def __init__(self) -> None:
        self.server, self.handled = InProcessServer(), list[int]()
        self.server.start(self.handle)

    def handle(self, envelope: Envelope, payload: Any) -> Reply:
        self.handled.append(envelope.seq)
        return Reply(m.Wait(0.0, False, str(len(self.handled))))

    def __call__(self, envelope: Envelope) -> str:
        reply: Any = self.server.answer(envelope, lambda: None).message
        return str(reply.message if isinstance(reply, m.Refused) else reply.reason)


@pytest.fixture
def ask() -> Asked:
    return Asked()


def test_reply_is_kept_until_its_receiver_asks_something_else(ask: Asked) -> None:
    assert [ask(sent(seq)) for seq in (1, 1, 2)] == ['1', '1', '2']
    assert 'request 1 is a late copy' in ask(sent(1))
    assert len(ask.server._newest) == 1 and ask.handled == [1, 2]


def test_replies_to_a_worker_that_was_lost_are_dropped_and_its_late_requests_are_not_handled(
    ask: Asked,
) -> None:
    ask(sent(1))
    ask.server.forget('nobody')
    ask.server.forget('s')
    assert 'late copy' in ask(sent(1))
    assert [*ask.server._newest.values()] == [(1, None)] and ask.handled == [1]
    assert ask(sent(2)) == '2', 'it may join again'


def test_reply_to_a_farewell_can_be_repeated_although_the_handler_forgets_the_worker(ask: Asked) -> None:
    def farewell(envelope: Envelope, payload: Any) -> Reply:
        ask.server.forget(envelope.session)
        return ask.handle(envelope, payload)

    ask.server.start(farewell)
    assert [ask(sent(1)), ask(sent(1))] == ['1', '1']


@pytest.mark.parametrize(
    'change',
    [
        {'seq': 2**53 + 1}, {'seq': True}, {'lane': MOST_AT_ONCE}, {'lane': -1}, {'session': 'x' * 65},
    ],
)  # fmt: skip
def test_head_of_an_envelope_is_checked(change: dict[str, Any]) -> None:
    tree = encode(sent(1))
    assert encode(decode(tree)) == tree
    with pytest.raises(MessageError):
        decode({**tree, **change})
