"""RayTransport: a worker's end of ``ray``."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from rlframe.errors import MessageError, RequestRefusedError
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.transport.base import Reply
from rlframe.transport.calling import ATTEMPT_TIMEOUT, CallingTransport
from rlframe.transport.envelope import Envelope
from rlframe.transport.flask_fs.array_file import Packed, pack
from rlframe.transport.ray.link import Link
from rlframe.transport.ray.mailbox import Answer, Parcel
from rlframe.transport.ray.server import RAY, RayServer
from rlframe.transport.ray.wire import first_line, from_body, parse_address, seal, to_body, unseal
from rlframe.utils.lazy import LazyModule

ray = LazyModule('ray')

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


@TRANSPORT_REGISTRY.register('ray')
class RayTransport(CallingTransport):
    """Sends messages through the mailbox of a coordinator, and arrays through the object store of the cluster.

    Args:
        cfg: Options.
        address: Address of the coordinator: ``ray://name@host:port``.
    """

    config: dict[str, Any] = dict(
        **RAY,
        attempt_timeout=ATTEMPT_TIMEOUT,
    )
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
