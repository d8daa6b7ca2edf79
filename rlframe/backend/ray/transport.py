"""The transport ``ray``: that over HTTP, between the nodes of a Ray cluster."""

from __future__ import annotations

from typing import Any

from rlframe.backend.ray.options import RAY_INIT
from rlframe.backend.ray.session import RaySession, connect
from rlframe.parallel.transport.base import Handler
from rlframe.parallel.transport.http import LOCAL, HTTPServer, HTTPTransport, ServerConfig
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.lazy import LazyModule

ray = LazyModule('ray')


class RayServerConfig(ServerConfig):
    """Options of ``RayServer``."""

    ray_init_config: dict[str, Any] = RAY_INIT


class RayServer(HTTPServer):
    """Takes messages at the address by which the other nodes of a cluster reach this one."""

    _cfg: RayServerConfig
    _session: RaySession | None = None

    def start(self, handler: Handler) -> None:
        """Starts Ray if it does not run yet, and begins to answer.

        Raises:
            MissingDependencyError: If Ray is not installed.
            ResourceError: If Ray does not start.
            ConfigError: If the port cannot be used.
        """
        self._session = connect(self._cfg.ray_init_config, 'ray_init_config')
        if self._host in LOCAL:
            self._host = ray.util.get_node_ip_address()
        super().start(handler)

    def close(self) -> None:
        """Stops answering, and ends Ray if this server started it; may be called twice."""
        super().close()
        if self._session is not None:
            self._session.close()


@TRANSPORT_REGISTRY.register('ray')
class RayTransport(HTTPTransport):
    """A connection to a ``RayServer``, which needs no Ray itself."""

    server_cls = RayServer
