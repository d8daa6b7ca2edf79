"""Locates a cluster and checks that it runs; Ray itself waits for minutes for a dead head."""

from __future__ import annotations

import importlib
import os
import socket
from typing import Any

from rlframe.errors import ConfigError, ResourceError

PROBE_SECONDS = 2.0
"""Longest wait for an answer at the port of a cluster."""
GREETING_SECONDS = 5.0
"""Longest wait for the first bytes of a cluster, which a busy one may not send at once."""
GREETING = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""Start of a client's connection in HTTP/2, which Ray's servers use: its preface and empty settings."""
SETTINGS = 4
"""Type of the frame that a server of HTTP/2 sends first; it is the fourth of the nine bytes of the frame's head."""


def address_here(where: str) -> str:
    """Returns the address of the cluster on this machine, as ``ray start`` noted it.

    Args:
        where: Config key of the arguments of ``ray.init``, for the error.

    Raises:
        ResourceError: If there is none.
    """
    services: Any = importlib.import_module('ray._private.services')
    address = services.find_bootstrap_address(None)
    if address is None:
        raise ResourceError(
            'no Ray is running on this machine',
            where=f'{where}.address',
            got='auto',
            expected="'local', or the address of a cluster",
        )
    return str(address)


def probe(address: str, where: str) -> None:
    """Checks that a Ray-like server answers at the address, because Ray would wait for minutes.

    Args:
        address: host:port.
        where: Config key of the address, for errors.

    Raises:
        ConfigError: If the address has another form.
        ResourceError: If no server answers, or a server other than Ray.
    """
    host, _, port = address.rpartition(':')
    if '://' in address or not host or not port.isdigit():
        raise ConfigError(
            'the address of a Ray cluster is host:port',
            where=where,
            got=address,
            expected="'local', 'auto' or for example '10.0.0.1:6379'",
            remedy='Ray Client (ray://) is not supported: start the run on a node of the cluster.',
        )
    problem, cause = '', None
    try:
        with socket.create_connection((host.strip('[]'), int(port)), PROBE_SECONDS) as connection:
            if os.environ.get('RAY_USE_TLS', '0') == '0' and not _is_greeted(connection):
                problem = f'the server at {address} is not the head node of a Ray cluster'
    except (OSError, OverflowError) as error:
        problem, cause = f'nothing answers at {address}: {error}', error
    if problem:
        raise wrong_address(problem, address, where) from cause


def _is_greeted(connection: socket.socket) -> bool:
    """Whether the other side answers as Ray's servers do, at once."""
    connection.settimeout(GREETING_SECONDS)
    head = b''
    try:
        connection.sendall(GREETING)
        while len(head) < 9 and (more := connection.recv(9 - len(head))):
            head += more
    except OSError:  # it closed the connection, or is silent
        return False
    return len(head) == 9 and head[3] == SETTINGS


def wrong_address(problem: str, address: str, where: str) -> ResourceError:
    """Returns the error for an address without a cluster."""
    return ResourceError(
        problem,
        where=where,
        got=address,
        expected="the address of a running Ray, or 'local'",
        remedy='It may come from RAY_ADDRESS. `ray start --head` starts a cluster and prints its address.',
    )
