"""Envelope: a message with its sender and its number, and its form on the wire.

``decode`` accepts a message only if it has every declared field, no other one, and each with the declared type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlframe.errors import CheckpointStateError, MessageError
from rlframe.transport.messages import KINDS, MAYBE_NAME, Message
from rlframe.utils import schema
from rlframe.utils.schema import COUNT, FLAG, Kind, Schema

PROTOCOL = 1
"""Version of the messages; roles of different versions refuse each other."""
MOST_AT_ONCE = 64
"""Requests of one connection that may wait for their replies at the same time."""
_MOST = 2**53
"""Largest number that every JSON reader keeps exactly."""


@dataclasses.dataclass(frozen=True)
class Envelope:
    """A message with its sender and its number; a number is never used for two different requests of a sender.

    A request that is repeated, since its reply was late or lost, has the same number, and is answered as the first time
    without being handled again.
    """

    sender: str
    """Id of the worker; empty before it has joined."""
    seq: int
    """Number of the request, from 0; a reply has that of its request."""
    message: Message
    has_payload: bool = False
    session: str = ''
    """Random name of the worker's connection, which replies are kept under; empty in a reply."""
    unanswered: tuple[int, ...] = ()
    """Numbers of all requests of the connection that wait for a reply, this one included; the replies to all earlier
    ones have arrived, or nobody waits for them."""


SEQ = Kind(f'an int in [0, {_MOST}]', lambda v: COUNT.fits(v) and v <= _MOST)
NUMBERS = Kind(
    f'a list of at most {MOST_AT_ONCE} ints',
    lambda v: isinstance(v, list | tuple) and len(v) <= MOST_AT_ONCE,
    SEQ,
)
ENVELOPE: Mapping[str, Schema] = {
    'protocol': Kind(str(PROTOCOL), lambda v: v == PROTOCOL and not isinstance(v, bool)),
    'kind': Kind(f'one of {sorted(KINDS)}', lambda v: isinstance(v, str) and v in KINDS),
    'sender': MAYBE_NAME,
    'seq': SEQ,
    'has_payload': FLAG,
    'session': MAYBE_NAME,
    'unanswered': NUMBERS,
    'fields': schema.DICT,
}


def encode(envelope: Envelope) -> dict[str, Any]:
    """Returns an envelope and its message as plain JSON values."""
    message = envelope.message
    fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}
    return {
        'protocol': PROTOCOL,
        'kind': type(message).__name__,
        'sender': envelope.sender,
        'seq': envelope.seq,
        'has_payload': envelope.has_payload,
        'session': envelope.session,
        'unanswered': list(envelope.unanswered),
        'fields': fields,
    }


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
    head = {name: tree[name] for name in ('sender', 'seq', 'has_payload', 'session')}
    return Envelope(message=kind(**fields), unanswered=tuple(tree['unanswered']), **head)


def _check(tree: Any, expected: Mapping[str, Schema], where: str) -> None:
    """Checks the fields of an untrusted dict: all of them, and no other."""
    if not isinstance(tree, Mapping):
        raise MessageError('a message is a dict', where=where, got=type(tree).__name__, expected='a dict')
    if isinstance(tree.get('protocol'), int) and 'protocol' in expected and tree['protocol'] != PROTOCOL:
        raise MessageError(
            'another version of the messages',
            where=where,
            got=tree['protocol'],
            expected=str(PROTOCOL),
            remedy='Install the same version of rlframe everywhere.',
        )
    if unknown := sorted(str(name)[:64] for name in tree.keys() - expected.keys()):
        raise MessageError(f'unknown fields: {", ".join(unknown[:5])}', where=where)
    if missing := sorted(expected.keys() - tree.keys()):
        raise MessageError(f'missing fields: {", ".join(missing)}', where=where)
    for name, kind in expected.items():
        try:
            schema.check_state(tree[name], kind, name)
        except CheckpointStateError as error:
            raise MessageError(
                error.message, where=f'{where}.{error.where}', got=error.got, expected=error.expected
            ) from None
