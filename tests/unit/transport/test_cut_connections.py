"""Connections that the other end, or a proxy, closed while they were idle."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from transports import Coordinator, join, serving

from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.flask_fs_client import FlaskFSTransport


def test_connections_that_were_cut_while_they_were_idle_are_not_used(tmp_path: Path) -> None:
    with serving('flask_fs', tmp_path, Coordinator()) as server:
        transport: Any = server.connect()
        assert isinstance(transport, FlaskFSTransport)
        transport.request(join())
        attempts, carry = [], transport.carry
        transport.carry = lambda *given: (attempts.append(given), carry(*given))[1]
        for _ in range(2):
            transport._idle.append(type(transport._idle[0])('127.0.0.1', 9))
            transport._idle[-1].sock, other = socket.socketpair()
            other.close()
        transport.request(m.AskTask())
        assert len(attempts) == 1 and len(transport._idle) == 1
        transport.close()
