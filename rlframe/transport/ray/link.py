"""Link: the connection of a process with the mailbox of a coordinator."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rlframe.backend.ray.actors.address import probe
from rlframe.backend.ray.actors.session import RaySession, connect
from rlframe.errors import CoordinatorLostError, ResourceError
from rlframe.transport.ray.wire import NAMESPACE, address_of
from rlframe.utils.lazy import LazyModule

ray = LazyModule('ray')

GONE_SECONDS = 20.0
"""How long a cluster may be silent; Ray ends a process about a minute after the end of its cluster, without a word."""


class Link:
    """Enters the cluster of a coordinator when it is first used, and finds the mailbox by its name.

    Args:
        name: Name of the mailbox.
        cluster: ``host:port`` of the cluster.
        init: Arguments of ``ray.init``, if this process has to enter the cluster.
    """

    def __init__(self, name: str, cluster: str, init: Mapping[str, Any]) -> None:
        self._name, self._cluster, self._init = name, cluster, init
        self._lock, self._idle = threading.Lock(), threading.Condition()
        self._users = 0
        self._session: RaySession | None = None
        self._mailbox: Any = None
        self._gone_at = -1.0
        self.entered = 0
        """How often this process has entered the cluster."""

    @contextmanager
    def used(self) -> Iterator[Any]:
        """Yields the mailbox, and keeps Ray running meanwhile.

        Raises:
            OSError: If it cannot be reached now.
            CoordinatorLostError: If the cluster is gone.
            ConfigError: If Ray does not accept its arguments.
        """
        with self._idle:
            self._users += 1
        try:
            yield self._found()
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()

    def lose(self) -> None:
        """Finds the mailbox anew for the next request, as it may have been replaced."""
        with self._lock:
            self._mailbox = None

    def close(self, seconds: float) -> None:
        """Leaves the cluster if this process entered it for this link; may be called twice.

        Args:
            seconds: How long to wait for requests that are under way.
        """
        with self._idle:
            self._idle.wait_for(lambda: not self._users, seconds)
        with self._lock:
            session, self._session, self._mailbox = self._session, None, None
            if session is not None:
                session.close()

    def _found(self) -> Any:
        with self._lock:
            if self._mailbox is None or not ray.is_initialized():
                self._check_cluster()
                self._enter()
                self._mailbox = self._named()
            return self._mailbox

    def _check_cluster(self) -> None:
        """Checks that the cluster answers, because a Ray whose cluster is gone waits for a minute."""
        try:
            probe(self._cluster, 'address')
            self._gone_at = -1.0
        except ResourceError as error:
            self._gone_at = monotonic() if self._gone_at < 0 else self._gone_at
            if monotonic() - self._gone_at > GONE_SECONDS:
                raise CoordinatorLostError(
                    f'the Ray cluster of the coordinator is gone: {error.message}',
                    where=address_of(self._name, self._cluster),
                    remedy='Is it running, and is this its address?',
                ) from error
            raise ConnectionError(error.message) from error

    def _enter(self) -> None:
        if self._session is not None and ray.is_initialized():
            return
        if self._session is not None:
            self._session.close()
            self._session = None
        given = (
            {}
            if ray.is_initialized()
            else {'configure_logging': False, **self._init, 'address': self._cluster}
        )
        try:
            self._session = connect(given, 'ray_init_config')
        except ResourceError as error:
            raise ConnectionError(error.message) from error
        self.entered += 1

    def _named(self) -> Any:
        try:
            return ray.get_actor(self._name, namespace=NAMESPACE)
        except ValueError as error:
            here = ray.get_runtime_context().gcs_address
            other = '' if here == self._cluster else f'; this process belongs to the cluster at {here}'
            raise ConnectionError(f'the cluster has no coordinator {self._name!r}{other}') from error
