"""Weights: sent to each worker once per version, as pieces of a payload that places pass on without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.timestep import Array
from rlframe.remote.payload import pack, unpack
from rlframe.remote.supervisor import Supervisor


def flatten(tree: Mapping[str, Any]) -> list[Array]:
    """Returns a nested tree of tensors, arrays and plain values as the pieces of a payload, uint8 [bytes] each.

    Ray transfers these without a copy. Tensors and arrays on the CPU are not copied here either.
    """
    return [np.frombuffer(chunk, np.uint8) for chunk in pack(tree)]


def unflatten(pieces: Sequence[Array]) -> dict[str, Any]:
    """Returns the tree that ``flatten`` was given; its tensors and arrays are copies."""
    tree: dict[str, Any] = unpack(np.concatenate(pieces), 'weights')
    return tree


def is_same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether two results of ``flatten`` are equal bit by bit; if not, comparing the beginning usually suffices."""
    return len(one) == len(other) and all(map(np.array_equal, one, other))


class Publisher:
    """Tracks the newest version of the weights, and the version that each actor has.

    Args:
        face: Collect face of the trained policy.
        pool: The workers.
        always: Whether each request brings the newest version.
        interval: Batches of one actor after which it gets the newest version in any case; negative: no limit.
    """

    def __init__(self, face: Any, pool: Supervisor, always: bool = True, interval: int = -1) -> None:
        self._pool = pool
        self.face = face
        """Collect face of the trained policy."""
        self.version = 0
        """Version of the newest weights, counted from 1."""
        self._always, self._interval = always, interval
        self._ref: Any = None
        self._newest: Sequence[Array] = []  # what the pool has stored
        self._at: dict[int, tuple[int, int, int]] = {}  # incarnation, version, batches since then, by rank

    def publish(self) -> None:
        """Publishes the current weights as the newest version, unless they equal it bit by bit."""
        weights = flatten(self.face.state_dict())
        if is_same(weights, self._newest):
            return
        self.version += 1
        self._ref, self._newest = self._pool.put(weights)

    def begin(self) -> None:
        """Prepares for the requests of one call, in which the weights do not change."""
        if self._always or self._ref is None:
            self.publish()

    def for_actor(self, rank: int) -> tuple[int, Any]:
        """Returns the version that an actor will have, and a reference to it; None if the actor has it already."""
        incarnation = self._pool.incarnation(rank)
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

        ``ranks`` maps ranks in the state to ranks here.
        """
        self._at = {}
        if state:
            self.version = state['version']
            self._ref, self._newest = self._pool.put(flatten(state['weights']))
            self._at = {
                ranks[int(rank)]: (-1, self.version, count) for rank, count in state['batches'].items()
            }
