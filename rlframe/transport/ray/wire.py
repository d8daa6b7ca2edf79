"""Messages and payloads as the mailbox carries them.

A payload has the form of a file of ``flask_fs``. A small one travels with its message; a large one is an object in Ray's
store, and only the reference to it travels.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from rlframe.errors import ConfigError, MessageError, NoRoomError
from rlframe.safety import strict_json
from rlframe.safety.secrets import shown_address
from rlframe.transport.envelope import Envelope, decode, encode
from rlframe.transport.flask_fs.array_file import Packed, unpack
from rlframe.transport.ray.mailbox import Parcel
from rlframe.utils.lazy import LazyModule

ray = LazyModule('ray')

NAMESPACE = 'rlframe'
"""Namespace of all mailboxes in a cluster."""
INLINE = 2**16
"""Bytes of the largest payload that travels with its message; Ray moves arguments above 100 KB to its store."""


def address_of(name: str, cluster: str) -> str:
    """Returns the address of a coordinator.

    Args:
        name: Name of its mailbox.
        cluster: ``host:port`` of the cluster.
    """
    return f'ray://{name}@{cluster}'


def parse_address(address: Any) -> tuple[str, str]:
    """Returns the name of the mailbox and ``host:port`` of the cluster.

    Raises:
        ConfigError: If it is not ``ray://name@host:port``.
    """
    text = str(address)
    name, _, cluster = text.removeprefix('ray://').rpartition('@')
    host, _, port = cluster.rpartition(':')
    if text.startswith('ray://') and name and host and port.isdigit():
        return name, cluster
    raise ConfigError(
        'bad address of a coordinator',
        where='address',
        got=shown_address(text),
        expected="'ray://name@host:port'",
    )


def to_body(envelope: Envelope) -> bytes:
    """Returns an envelope as JSON."""
    return json.dumps(strict_json.to_tagged(encode(envelope)), allow_nan=False).encode('ascii')


def from_body(body: bytes) -> Envelope:
    """Returns the envelope that ``to_body`` was given.

    Raises:
        MessageError: If it is not one of this version of rlframe.
    """
    try:
        return decode(strict_json.from_tagged(strict_json.loads(body, 'MANIFEST')))
    except MessageError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise MessageError(f'the message is not JSON: {error}') from error


def seal(packed: Packed) -> Parcel:
    """Returns a payload in a form that travels, copied once.

    Raises:
        NoRoomError: If the object store has no room for it.
    """
    if packed.nbytes <= INLINE:
        return b''.join(packed.chunks)
    try:
        return [ray.put([np.frombuffer(chunk, np.uint8) for chunk in packed.chunks])]
    except ray.exceptions.RayError as error:
        raise NoRoomError(
            f'the object store of Ray has no room for {packed.nbytes:,} bytes: {first_line(error)}',
            where='object_store_memory',
            remedy='Give the cluster a larger object store, or send smaller parts.',
        ) from error


def unseal(parcel: Parcel, seconds: float) -> Any:
    """Returns a payload; its arrays are copies, so that they can be written and the store gets its room back.

    Args:
        parcel: What ``seal`` returned.
        seconds: How long the transfer from another node may take.

    Raises:
        MessageError: If it is not what ``seal`` returned.
        ray.exceptions.RayError: If it did not come in time, or was lost with the process that sent it.
    """
    if parcel is None:
        return None
    if isinstance(parcel, bytes):
        parts = [np.frombuffer(parcel, np.uint8)]
    else:
        parts = ray.get(parcel[0], timeout=seconds)
    data = np.empty(sum(len(part) for part in parts), np.uint8)
    np.concatenate(parts, out=data)
    return unpack(lambda: data, 'payload')


def first_line(error: Exception) -> str:
    """Returns the first line of one of Ray's errors, with its type."""
    text = str(error).strip().partition('\n')[0]
    return f'{type(error).__name__}: {text[:300]}' if text else type(error).__name__
