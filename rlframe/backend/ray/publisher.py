"""Publisher: stores each version of the weights once in the object store, and passes references to actors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import ray

from rlframe.backend.ray.actor import flatten, is_same, unflatten
from rlframe.backend.ray.pool import ActorPool


class Publisher:
    """Tracks the newest version of the weights, and the version that each actor has.

    Args:
        face: Collect face of the trained policy.
        always: Whether each request brings the newest version.
        interval: Batches of one actor after which it gets the newest version in any case; negative: no limit.
    """

    def __init__(self, face: Any, always: bool = True, interval: int = -1) -> None:
        self.face = face
        """Collect face of the trained policy."""
        self.version = 0
        """Version of the newest weights, counted from 1."""
        self._always, self._interval = always, interval
        self._ref: Any = None
        self._newest: Any = None  # what the object store has
        self._at: dict[int, tuple[int, int, int]] = {}  # incarnation, version, batches since then, by rank

    def publish(self) -> None:
        """Publishes the current weights as the newest version, unless they equal it bit by bit."""
        weights = flatten(self.face.state_dict())
        if is_same(weights, self._newest):
            return
        self.version += 1
        self._ref = ray.put(weights)
        self._newest = ray.get(self._ref)

    def begin(self) -> None:
        """Prepares for the requests of one call, in which the weights do not change."""
        if self._always or self._ref is None:
            self.publish()

    def for_actor(self, pool: ActorPool, rank: int) -> tuple[int, Any]:
        """Returns the version that an actor will have, and a reference to it; None if the actor has it already."""
        incarnation = pool.slots[rank].incarnation
        there, version, batches = self._at.get(rank, (-1, 0, 0))
        is_due = 0 <= self._interval <= batches
        if is_due:
            self.publish()
        if there != incarnation or ((is_due or self._always) and version != self.version):
            self._at[rank] = (incarnation, self.version, 1 + (batches if version == self.version else 0))
            return self.version, self._ref
        self._at[rank] = (incarnation, version, batches + 1)
        return version, None

    def renew(self, ranks: Iterable[int]) -> None:
        """Publishes the current weights as the newest version, which these actors get with their next requests."""
        self.publish()
        for rank in ranks:
            self._at.pop(rank, None)

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights that actors continue with: none if each request brings the newest weights anyway.

        Of the versions that actors have, the newest one is kept.
        """
        if self._always or self._ref is None:
            return {}
        batches = {
            str(rank): count for rank, (_, version, count) in self._at.items() if version == self.version
        }
        return {'version': self.version, 'weights': unflatten(self._newest), 'batches': batches}

    def load_state_dict(self, state: Mapping[str, Any], ranks: Mapping[int, int]) -> None:
        """Restores the state from ``state_dict()``; every actor gets its weights again.

        Args:
            state: As returned by ``state_dict()``.
            ranks: Maps ranks in the state to ranks here.
        """
        self._at = {}
        if state:
            self.version, self._ref = state['version'], ray.put(flatten(state['weights']))
            self._newest = ray.get(self._ref)
            self._at = {
                ranks[int(rank)]: (-1, self.version, count) for rank, count in state['batches'].items()
            }
