"""Which replies a server keeps, and what becomes of those that it does not."""

from __future__ import annotations

from typing import Any

import pytest
from transports import Coordinator, collected, join

from rlframe.errors import MessageError
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import InProcessServer, Replies
from rlframe.parallel.transport.base import MOST_AT_ONCE, Envelope, decode, encode


def sent(seq: int, lane: int = 0) -> Envelope:
    return Envelope('w', seq, m.AskTask(), False, 's', lane)


def joining(session: str = 's', seq: int = 0) -> Envelope:
    return Envelope('', seq, join(), False, session)


@pytest.fixture
def replies() -> Any:
    made: Any = Replies(patience=0.01)  # it does not look at what it keeps
    made.once(joining(), lambda: 'joined')
    made.joined('s', 'w')
    return made


def never() -> str:
    raise AssertionError('handled')


def test_reply_is_kept_until_its_receiver_asks_something_else(replies: Any) -> None:
    assert replies.once(sent(1), lambda: 'one') == 'one'
    assert replies.once(sent(1), never) == 'one'
    assert replies.once(sent(2), lambda: 'two') == 'two' and [
        seq for seq, _ in replies._sessions['s'].newest.values()
    ] == [2]
    with pytest.raises(MessageError, match='request 1 is a late copy'):
        replies.once(sent(1), never)


def test_reply_that_another_thread_waits_for_is_kept(replies: Any) -> None:
    assert replies.once(sent(1, lane=1), lambda: 'one') == 'one'
    for seq in range(1, 100):
        replies.once(sent(seq), lambda: 'more')
    assert replies.once(sent(1, lane=1), never) == 'one'


def test_late_copy_of_a_join_admits_nobody(replies: Any) -> None:
    replies.once(sent(1), lambda: 'one')
    with pytest.raises(MessageError, match='late copy'):
        replies.once(joining(), never)
    replies.forget('w')
    with pytest.raises(MessageError, match='late copy'):
        replies.once(joining(), never)


def test_forgotten_worker_is_refused_and_its_replies_are_dropped(replies: Any) -> None:
    replies.once(sent(1), lambda: 'one')
    replies.forget('w')
    assert [*replies._sessions['s'].newest.values()] == [(1, None)]
    with pytest.raises(MessageError, match='does not know'):
        replies.once(sent(2), never)
    replies.once(joining(seq=3), lambda: 'again')
    replies.joined('s', 'w2')
    with pytest.raises(MessageError, match='another connection'):
        replies.once(sent(4), never)


def test_reply_to_a_farewell_can_be_repeated_although_the_handler_forgets_the_worker(
    replies: Any,
) -> None:
    def farewell() -> str:
        replies.forget('w')
        return 'farewell'

    replies.once(sent(1), farewell)
    assert replies.once(sent(1), never) == 'farewell'


def test_failed_handler_leaves_no_reply_and_is_not_called_again(replies: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        replies.once(sent(1), lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(TimeoutError):
        replies.once(sent(1), never)


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


def test_too_many_requests_at_the_same_time_are_refused() -> None:
    server = InProcessServer()
    server.start(Coordinator())
    transport = server.connect()
    transport._next = [0] * MOST_AT_ONCE
    with pytest.raises(MessageError, match='at the same time'):
        transport.request(collected(0))
    server.close()
