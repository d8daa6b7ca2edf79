"""RayTransport: a worker's end of ``ray``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rlframe.backend.ray.options import RAY_INIT
from rlframe.backend.ray.session import RaySession, connect, probe
from rlframe.backend.ray.transport_server import (
    NAMESPACE,
    Answer,
    Parcel,
    RayServer,
    address_of,
    first_line,
    from_body,
    parse_address,
    seal,
    to_body,
    unseal,
)
from rlframe.errors import CoordinatorLostError, MessageError, RequestRefusedError, ResourceError
from rlframe.parallel.transport.base import ATTEMPT_TIMEOUT, Envelope, Reply, Transport, TransportConfig
from rlframe.parallel.transport.flask_fs_folder import Packed, pack
from rlframe.registry import TRANSPORT_REGISTRY
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


SLICE_SECONDS = 0.5
"""How long a request waits before it looks whether the connection was closed."""
GRACE_SECONDS = 0.5
"""How much later than asked for the mailbox may answer."""


class Upload:
    """The payload of a request; it travels when it is first needed, and again in another cluster.

    Args:
        packed: The payload.
    """

    def __init__(self, packed: Packed) -> None:
        self._packed, self._parcel, self._entered = packed, None, -1  # type: Packed, Parcel, int

    def parcel(self, entered: int) -> Parcel:
        """Returns what travels.

        Args:
            entered: How often the process has entered a cluster.

        Raises:
            NoRoomError: If the object store has no room for it.
        """
        if self._entered != entered:
            self._parcel, self._entered = seal(self._packed), entered
        return self._parcel


class RayTransportConfig(TransportConfig):
    """Options of ``RayTransport``."""

    ray_init_config: dict[str, Any] = RAY_INIT
    attempt_timeout: float = ATTEMPT_TIMEOUT


@TRANSPORT_REGISTRY.register('ray')
class RayTransport(Transport):
    """Sends messages through the mailbox of a coordinator, and arrays through the object store of the cluster.

    Args:
        cfg: Options.
        address: Address of the coordinator: ``ray://name@host:port``.
    """

    _cfg: RayTransportConfig
    server_cls = RayServer

    def __init__(self, cfg: Mapping[str, Any] | None, address: str) -> None:
        name, cluster = parse_address(address)
        super().__init__(cfg, address)
        self._link = Link(name, cluster, self._cfg.ray_init_config)

    def pack(self, envelope: Envelope, payload: Any) -> Upload | None:
        """Returns the payload, which is not copied yet."""
        return None if payload is None else Upload(pack(payload))

    def carry(self, envelope: Envelope, packed: Upload | None, seconds: float) -> Reply:
        """Sends an envelope once and returns the reply."""
        end = monotonic() + seconds
        wait = min(seconds, self._cfg.attempt_timeout)
        with self._link.used() as mailbox:
            parcel = None if packed is None else packed.parcel(self._link.entered)
            try:
                answer = self._awaited(mailbox.ask.remote(to_body(envelope), parcel, wait), wait)
                if not answer.body:
                    raise ConnectionError(answer.reason)
                reply = self._read(answer)
                left = max(end - monotonic(), 0.0)
                # a fetch may hang: one more is left
                some = min(left, max(left / 2, self._cfg.attempt_timeout))
                return Reply(reply.message, unseal(answer.parcel, some) if reply.has_payload else None)
            except ray.exceptions.RayError as error:
                self._link.lose()
                raise ConnectionError(
                    f'the mailbox of the coordinator failed: {first_line(error)}'
                ) from error
            except TimeoutError:
                self._link.lose()
                raise

    def close(self) -> None:
        """Ends the connection, and that of this process with the cluster if it was made for it."""
        super().close()
        self._link.close(2 * SLICE_SECONDS)

    def _awaited(self, asked: Any, seconds: float) -> Answer:
        """Returns the answer of the mailbox.

        Raises:
            OSError: If none came in time, or the connection was closed.
        """
        start = monotonic()
        while not self._closed.is_set():
            end = min(start + seconds + GRACE_SECONDS, max(start, self._hurried_at) + self._patience)
            left = end - monotonic()
            try:
                answer: Answer | None = ray.get(asked, timeout=max(min(left, SLICE_SECONDS), 0.0))
                if answer is None:
                    break
                return answer
            except ray.exceptions.GetTimeoutError:
                if left <= 0.0:
                    break
        raise TimeoutError(f'no reply came in {seconds:g} s')

    def _read(self, answer: Answer) -> Envelope:
        try:
            return from_body(answer.body)
        except MessageError as error:
            raise RequestRefusedError(
                f'what answers there is no coordinator of this rlframe: {error}',
                where=self._where,
                remedy='Check the address, and install the same version of rlframe everywhere.',
            ) from error
