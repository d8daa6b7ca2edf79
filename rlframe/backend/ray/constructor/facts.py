"""Properties of a RayCollector about its actors, devices and counts."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlframe.backend.ray.actors.pool import ActorPool
from rlframe.backend.ray.actors.publisher import Publisher
from rlframe.backend.ray.constructor.lists import check_one_device, filled


class ActorState(NamedTuple):
    """State of an actor."""

    rank: int
    incarnation: int
    """Number of actors lost at this rank before."""
    is_ready: bool
    pid: int | None
    node: str | None


class ActorFacts:
    """The properties of a RayCollector, under the names that TorchRL's class has."""

    _pool: ActorPool
    _publisher: Publisher
    delivered: int
    _devices: tuple[Any, list[Any], Any, list[Any]] = (None, [None], None, [None])

    def remote_collectors(self) -> list[Any]:
        """Returns Ray's handles of the actors, ordered by rank, but for those that wait to be replaced.

        A call of their ``collect`` would not be counted.
        """
        slots = [self._pool.slots[rank] for rank in self._pool.ranks]
        return [slot.actor for slot in slots if slot.actor is not None]

    def actor_states(self) -> tuple[ActorState, ...]:
        """Returns the state of each actor, ordered by rank."""
        slots = [self._pool.slots[rank] for rank in self._pool.ranks]
        return tuple(
            ActorState(
                slot.rank,
                slot.incarnation,
                slot.facts is not None,
                slot.facts.pid if slot.facts else None,
                slot.facts.node if slot.facts else None,
            )
            for slot in slots
        )

    @property
    def num_workers(self) -> int:
        """Number of actors."""
        return len(self._pool.ranks)

    @property
    def num_collectors(self) -> int:
        """Number of actors."""
        return self.num_workers

    @property
    def collected_frames(self) -> int:
        """Number of frames returned so far."""
        return self.delivered

    @property
    def policy_weights(self) -> dict[str, Any]:
        """Weights of the trained policy, as in its ``state_dict``; empty for a function."""
        weights: dict[str, Any] = self._publisher.face.state_dict()
        return weights

    @property
    def device(self) -> Any:
        """Device of policies and batches, as given.

        Another one can be set: batches are then on it unless a ``storing_device`` was given. Policies of running actors
        stay where they are.

        Raises:
            ConfigError: If it is a list of another length, or of several devices without a ``storing_device``.
        """
        return self._devices[0]

    @device.setter
    def device(self, device: Any) -> None:
        check_one_device(filled(self._devices[1], device))
        self._devices = (device, *self._devices[1:])

    @property
    def storing_device(self) -> Any:
        """Device of the batches; None if they contain numpy arrays."""
        return filled(self._devices[1], self.device)[0]

    @property
    def env_device(self) -> Any:
        """Device of the envs, as given."""
        return self._devices[2]

    @property
    def policy_device(self) -> Any:
        """Devices of the policies in the actors."""
        return self._devices[3]
