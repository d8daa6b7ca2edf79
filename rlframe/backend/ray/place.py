"""RayPlace: runs workers as Ray actors, on any node of a cluster."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from rlframe.backend.ray.options import remote_config_of
from rlframe.backend.ray.session import RaySession, actor_resources, cause_of, connect
from rlframe.data.timestep import Array
from rlframe.remote.places import LostError, Place
from rlframe.remote.supervisor import Call
from rlframe.remote.worker import Failure, Worker


class RayPlace(Place):
    """Runs each worker in a Ray actor; weights and data go through Ray's object store.

    Args:
        kind: Class of the workers.
        init: Arguments of ``ray.init``, used if Ray is not running.
        remote_configs: Resources of an actor, such as ``num_cpus`` (1), or a list with one dict for each.
        section: Config key of the options; empty in a Python program.
        names: Names of the workers; see ``Place``.
    """

    name = 'Ray actor'
    tag = 'ray'
    lifetime: Mapping[str, Any] = {'max_restarts': 0, 'max_task_retries': 0}
    """Options of an actor that say what Ray does at its end."""

    def __init__(
        self,
        kind: type[Worker],
        init: Mapping[str, Any] = {},
        remote_configs: Mapping[str, Any] | Sequence[Any] = {},
        section: str = '',
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(kind, names)
        self._init, self._remote_configs = init, remote_configs
        self._section = section
        self._options: dict[int, Mapping[str, Any]] = {}  # resources, by rank
        self._remote: Any = ray.remote(kind)

    @cached_property
    def _session(self) -> RaySession:
        """The connection to Ray, which begins with the first reservation.

        Raises:
            ResourceError: If no Ray answers at the given address.
        """
        name = 'ray_init_config'
        return connect(self._init, f'{self._section}.{name}' if self._section else name)

    def reserve(self, ranks: Sequence[int], own: Sequence[Any] = ()) -> None:
        more = own or [{}] * len(ranks)
        options = {
            rank: {**remote_config_of(self._remote_configs, rank), **each}
            for rank, each in zip(ranks, more, strict=True)
        }
        demands = [actor_resources(each) for each in options.values()]
        self._session.require(demands, self._section or 'num_collectors')
        self._options |= options

    def release(self, rank: int) -> None:
        self._session.release([actor_resources(self._options.pop(rank))])

    def lacking(self) -> str:
        return self._session.needed_and_free([actor_resources(each) for each in self._options.values()])

    def take_make(self, make: bytes) -> None:
        self._make = ray.put(make)

    def start(self, rank: int, incarnation: int) -> Any:
        path = [os.path.abspath(place) for place in sys.path]  # actors start in another folder
        actor = self._remote.options(**self._options[rank], **self.lifetime)
        return actor.remote(self._make, rank, incarnation, path)

    def send(self, link: Any, call: Call) -> None:
        method = getattr(link, call.method)
        if call.method in self.kind.with_data:
            call.ticket, call.data = method.options(num_returns=2).remote(*call.args)
        else:
            call.ticket = method.remote(*call.args)

    def wait(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        refs = [call.ticket for call in calls]
        ray.wait(refs, num_returns=1, timeout=seconds)
        answered, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        ready = set(answered)
        return [call for call in calls if call.ticket in ready]

    def answer(self, call: Call) -> Any:
        try:
            return ray.get(call.ticket, timeout=None if call.seconds == math.inf else call.seconds)
        except RayTaskError as error:
            return Failure(b'', cause_of(error), str(error))
        except RayError as error:
            raise LostError(cause_of(error)) from error

    def data(self, call: Call) -> Any:
        try:
            return ray.get(call.data, timeout=call.seconds)
        except RayError as error:
            raise LostError(cause_of(error)) from error

    def put(self, pieces: Sequence[Array]) -> tuple[Any, Sequence[Array]]:
        ref = ray.put(pieces)
        return ref, ray.get(ref)

    def end(self, links: Sequence[Any], seconds: float) -> None:
        if not ray.is_initialized():  # any further use would start another one
            return
        if links and seconds > 0:
            ray.wait([link.close.remote() for link in links], num_returns=len(links), timeout=seconds)
        for link in links:
            ray.kill(link)

    def close(self) -> None:
        """Gives all resources back, and ends Ray if it was started here."""
        if '_session' in vars(self):
            self._session.close()
