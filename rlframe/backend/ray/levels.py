"""LevelSeeds: divides the argument ``level_seeds`` of ``collect`` among actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlframe.backend.ray.actors.calls import Slot
from rlframe.errors import ConfigError

UNKNOWN = -1
"""Level in rows of calls without levels, as in a collector in this process."""


class LevelSeeds:
    """The level of each env of all actors, by the ids of the column ``env_id``.

    Env i of actor r has the id ``r * N + i`` if each actor has N envs. Once levels were given, each request has some, so
    that an actor that was not asked then, or takes the place of a lost one, returns the same columns as the others.
    """

    def __init__(self) -> None:
        self.is_given = False
        """Whether levels were given since the last reset of the envs."""
        self._envs: dict[int, list[int]] = {}  # ids of each actor's envs
        self._levels: dict[int, Any] = {}  # of each of these envs, in the current call

    def begin(
        self, given: Mapping[int, int] | Sequence[int] | None, slots: Mapping[int, Slot], sync: bool
    ) -> None:
        """Takes the levels of a call.

        Args:
            given: Level of each env: a dict from env id to seed, or a list in the order of ids; None: unknown.
            slots: The actors.
            sync: Whether a call returns the answers to its own requests only.

        Raises:
            ConfigError: If an env has no level, a level no env, or requests of earlier calls may be in flight.
        """
        for rank, slot in slots.items():
            if slot.facts is not None:  # else it starts again, with as many envs as before
                own = slot.facts.env_num
                self._envs[rank] = [rank * own + i for i in range(own)]
        envs = [env for rank in sorted(slots) for env in self._envs.get(rank, ())]
        if given is None:
            self._levels = dict.fromkeys(envs, UNKNOWN)
            return
        if not sync:
            raise ConfigError(
                'level_seeds are for the rows of one call, and without sync it returns rows of earlier requests, too',
                where='sync',
                got=sync,
                expected='True',
            )
        self._levels = dict(given) if isinstance(given, Mapping) else dict(zip(envs, given, strict=False))
        if len(given) != len(envs) or set(self._levels) != set(envs):
            raise ConfigError(
                'level_seeds needs one seed for each env of all actors',
                where='level_seeds',
                got=f'seeds for {sorted(given) if isinstance(given, Mapping) else len(given)}',
                expected=f'the {len(envs)} envs {envs}',
            )
        self.is_given = True

    def options(self, rank: int) -> dict[str, Any]:
        """Returns the argument for an actor; empty if levels were never given."""
        return {'level_seeds': [self._levels[env] for env in self._envs[rank]]} if self.is_given else {}
