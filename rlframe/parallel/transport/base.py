"""Transport: numbers requests and repeats them until they are answered; how messages are written."""

from __future__ import annotations

import dataclasses
import secrets
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rlframe.errors import (
    CheckpointStateError,
    CoordinatorLostError,
    MessageError,
    NotJoinedError,
    RequestRefusedError,
)
from rlframe.parallel.transport.messages import KINDS, MAYBE_NAME, REJOIN, Join, Joined, Message, Refused
from rlframe.utils import schema
from rlframe.utils.field import Configurable
from rlframe.utils.schema import COUNT, FLAG, Kind, Schema

PROTOCOL = 1
"""Version of the messages; roles of different versions refuse each other."""
MOST_AT_ONCE = 64
"""Requests of one connection that may wait for their replies at the same time."""
_MOST = 2**53
"""Largest number that every JSON reader keeps exactly."""
HEAD: Mapping[str, Schema] = {
    'sender': MAYBE_NAME,
    'seq': Kind(f'an int in [0, {_MOST}]', lambda v: COUNT.fits(v) and v <= _MOST),
    'has_payload': FLAG,
    'session': MAYBE_NAME,
    'lane': Kind(f'an int below {MOST_AT_ONCE}', lambda v: COUNT.fits(v) and v < MOST_AT_ONCE),
}
"""Schemas of the fields of an ``Envelope``, but the message."""
ENVELOPE: Mapping[str, Schema] = {
    'protocol': Kind(str(PROTOCOL), lambda v: v == PROTOCOL and not isinstance(v, bool)),
    'kind': Kind(f'one of {sorted(KINDS)}', lambda v: isinstance(v, str) and v in KINDS),
    **HEAD,
    'fields': schema.DICT,
}
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two attempts: each pause is twice the one before."""
TIMEOUT = 30.0
"""Seconds that a request is repeated, if its sender does not say for how long."""


def joined(data: Any, extras: Mapping[str, Any]) -> Any:
    """Returns the payload of data and extras: the data alone if there are none."""
    return {'data': data, **extras} if extras else data


def split(payload: Any) -> tuple[Any, dict[str, Any]]:
    """Returns data and extras of a payload from ``joined``."""
    if isinstance(payload, dict) and 'data' in payload:
        return payload['data'], {name: value for name, value in payload.items() if name != 'data'}
    return payload, {}


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the extras of two payloads as those of one: lists are joined, of other values the later one counts."""
    lists = [name for name in after if isinstance(after[name], list) and name in before]
    return {**before, **after, **{name: before[name] + after[name] for name in lists}}


def batches_of(data: Any, count: int) -> list[Any]:
    """Returns the batches of a payload, which are sent as one if there are several."""
    if isinstance(data, list) or count <= 1:
        return data if isinstance(data, list) and count > 1 else [data]
    return [data[rows] for rows in np.array_split(np.arange(len(data)), count)]


@dataclasses.dataclass(frozen=True)
class Envelope:
    """A message with its sender and its number.

    Requests of a connection that wait at the same time are on different lanes; those of a lane follow one another. A
    request that is repeated, since its reply was late or lost, has the same lane and number, and is answered as the first
    time without being handled again.
    """

    sender: str
    """Id of the worker; empty before it has joined."""
    seq: int
    """Number of the request on its lane, from 0; a reply has that of its request."""
    message: Message
    has_payload: bool = False
    session: str = ''
    """Random name of the worker's connection, which replies are kept under; empty in a reply."""
    lane: int = 0
    """Lane of the request: the replies to all earlier ones on it have arrived, or nobody waits for them."""


def encode(envelope: Envelope) -> dict[str, Any]:
    """Returns an envelope and its message as plain JSON values."""
    head = {name: getattr(envelope, name) for name in HEAD}
    kind = type(envelope.message).__name__
    fields = dict(vars(envelope.message))
    return {'protocol': PROTOCOL, 'kind': kind, **head, 'fields': fields}


def decode(tree: Any) -> Envelope:
    """Returns the envelope that ``encode`` wrote.

    Raises:
        MessageError: If a field is missing, unknown or of another type, or the protocol is another one.
    """
    _check(tree, ENVELOPE, 'the message')
    kind = KINDS[tree['kind']]
    fields = tree['fields']
    _check(fields, kind.SCHEMA, tree['kind'])
    if tree['has_payload'] and not kind.has_payload:
        raise MessageError('this kind of message has no payload', where=tree['kind'])
    return Envelope(message=kind(**fields), **{name: tree[name] for name in HEAD})


def _check(tree: Any, expected: Mapping[str, Schema], where: str) -> None:
    """Checks the fields of an untrusted dict: all of them, and no other."""
    remedy = 'Install the same version of rlframe everywhere.'
    try:
        schema.check_state(tree, expected, where)
    except CheckpointStateError as error:
        facts = dict(where=error.where, got=error.got, expected=error.expected)
        text = error.message.replace('part of the state', 'field of the message')
        raise MessageError(text, **facts, remedy=remedy) from None
    if unknown := sorted(str(name)[:64] for name in tree.keys() - expected.keys()):
        raise MessageError(f'unknown fields: {", ".join(unknown[:5])}', where=where, remedy=remedy)


class Reply(NamedTuple):
    """The answer to a request."""

    message: Message
    payload: Any = None
    """A ``Batch``, or a tree of dicts and lists with arrays and tensors, which nobody changes; None if there is none."""


Handler = Callable[[Envelope, Any], Reply]
"""Handles a request and its payload; called by several threads, once for each request.

It may raise: ``MessageError`` if it refuses the request, any other ``RLFrameError`` if the worker has to end.
"""


class Transport(Configurable):
    """A worker's connection to its coordinator; safe to use from several threads.

    It numbers the requests, and sends one again with the same number while no reply comes: the coordinator handles each
    at most once. One that a worker creates takes its options and the address: ``cls(cfg, address)``. A subclass
    implements ``carry``, and ``pack`` if its payloads have another form on the way.

    Args:
        cfg: Options.
        where: Address of the coordinator, for errors.
    """

    server_cls: Any
    """Class of the other end, a ``Server``."""

    def __init__(self, cfg: Mapping[str, Any] | None, where: str) -> None:
        self._cfg = self.resolve_config(cfg)
        self._where = where
        self._session = secrets.token_hex(16)
        self._worker = ''
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._next: list[int] = []  # number of the next request on each lane
        self._free: list[int] = []  # lanes on which no request waits
        self._first_pause = FIRST_PAUSE
        self._hurried_at = 0.0
        self._patience = inf

    def request(self, message: Message, payload: Any = None, timeout: float = TIMEOUT) -> Reply:
        """Sends a message and returns the reply.

        Args:
            message: The message. ``Joined``, the reply to ``Join``, gives the worker its id.
            payload: Arrays that travel with it: a ``Batch``, or a tree of dicts and lists with arrays and tensors.
            timeout: Seconds until the request, repetitions included, is given up.

        Raises:
            CoordinatorLostError: If no reply came in time; with the address and the last cause.
            RequestRefusedError: If the coordinator refused the request; with its reason and remedy. If ``is_fatal``,
                the worker has to end.
            NotJoinedError: If the coordinator does not know this worker, or no longer; it may join again.
            MessageError: If a field of the message does not have its declared type; nothing was sent.
            PayloadError: If the payload cannot be sent, since it is too large or has an unsupported type; nothing was
                sent.
        """
        end = monotonic() + timeout
        envelope = self._numbered(message, payload is not None)
        try:
            return self._accepted(message, self._answered(envelope, self.pack(envelope, payload), end))
        finally:
            with self._lock:
                self._free.append(envelope.lane)

    def hurry(self, seconds: float) -> None:
        """Lets each running or later request wait for so many seconds at most; a signal handler may call it."""
        self._hurried_at = monotonic()
        self._patience = seconds

    def close(self) -> None:
        """Ends the connection; requests that wait for a reply fail. May be called twice."""
        self._closed.set()

    @abstractmethod
    def carry(self, envelope: Envelope, packed: Any, seconds: float) -> Reply:
        """Sends an envelope and its payload from ``pack`` once, and returns the reply if it comes within these seconds.

        Raises:
            OSError: If no reply came, such as ``ConnectionError`` and ``TimeoutError``; the request is repeated.
        """

    def pack(self, envelope: Envelope, payload: Any) -> Any:
        """Prepares a payload for all attempts of a request.

        Raises:
            PayloadError: If it cannot be sent.
        """
        return payload

    def _numbered(self, message: Message, has_payload: bool) -> Envelope:
        # raises here if the coordinator would refuse it
        decode(encode(Envelope('', 0, message, has_payload)))
        with self._lock:
            if not self._free:
                self._free.append(len(self._next))
                self._next.append(0)
            lane = self._free.pop()
            seq = self._next[lane]
            self._next[lane] = self._next[lane] + 1
            sender = '' if isinstance(message, Join) else self._worker
        return Envelope(sender, seq, message, has_payload, self._session, lane)

    def _answered(self, envelope: Envelope, packed: Any, end: float) -> Reply:
        """Repeats a request until its reply comes or the time is over."""
        start = monotonic()
        pause = self._first_pause
        cause = 'no time was left for an attempt'

        def left() -> float:
            return min(end, max(start, self._hurried_at) + self._patience) - monotonic()

        while not self._closed.is_set() and (seconds := left()) > 0:
            try:
                return self.carry(envelope, packed, seconds)
            except OSError as error:
                cause = error.strerror or str(error) or type(error).__name__
            self._closed.wait(min(pause, max(left(), 0.0)))
            pause = min(2 * pause, LONGEST_PAUSE)
        if self._closed.is_set():
            raise CoordinatorLostError('the connection was closed', where=self._where)
        raise CoordinatorLostError(
            f'the coordinator does not answer {type(envelope.message).__name__}: {cause}',
            where=self._where,
            remedy='Is it running, and is this its address?',
        )

    def _accepted(self, message: Message, reply: Reply) -> Reply:
        got = reply.message
        if isinstance(got, Refused):
            if got.remedy == REJOIN:
                raise NotJoinedError(got.message, where=self._where, remedy=got.remedy)
            error = RequestRefusedError(got.message, where=self._where, remedy=got.remedy)
            error.is_fatal = got.fatal
            raise error
        if isinstance(message, Join) and isinstance(got, Joined):
            with self._lock:
                self._worker = got.worker
        return reply
