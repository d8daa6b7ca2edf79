"""Records of an actor pool: calls, results, and the slot of each actor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlframe.backend.ray.actors.actor import Facts

FIRST_BACKOFF, LONGEST_BACKOFF = 0.5, 30.0
"""Seconds before a lost actor is replaced; each further loss in the window doubles them."""


class Call:
    """A call of a method of an actor.

    Args:
        number: Number of the call, increasing over all actors.
        rank: Which actor.
        method: Name of the method.
        args: Arguments; object references are passed on as such.
        seconds: Time limit, in seconds.
        size: Expected amount of data, in training samples or episodes.
    """

    def __init__(
        self, number: int, rank: int, method: str, args: tuple[Any, ...], seconds: float, size: int = 0
    ) -> None:
        self.number, self.rank, self.method, self.args = number, rank, method, args
        self.seconds, self.size = seconds, size
        self.ref: Any = None
        self.data: Any = None
        self.is_wanted = True
        """Whether the result is to be delivered."""


class Answer(NamedTuple):
    """The result of a call."""

    call: Call
    value: Any = None
    data: Any = None
    """Reference to the data of ``collect``."""
    lost: str = ''
    """Reason for a missing value; empty if there is a value."""


class Slot:
    """The slot of an actor, kept when the actor is replaced.

    Args:
        rank: Rank of the actor.
        options: Resources of the actor.
    """

    def __init__(self, rank: int, options: Mapping[str, Any]) -> None:
        self.rank, self.options = rank, options
        self.incarnation = 0
        self.actor: Any = None
        self.due = 0.0
        """When the next actor may be started."""
        self.facts: Facts | None = None
        """The actor's report when it was ready; None before."""
        self.backoff = FIRST_BACKOFF
        self.late_starts = 0
        """Number of consecutive actors that took too long to start here."""
        self.calls: list[Call] = []
        """Pending calls, in the order of execution; sent once there is an actor."""
        self.deadline = float('inf')
        """Deadline of the first of them, which the actor is working on."""

    def begin_next(self) -> None:
        """Records that the actor starts its next call now."""
        self.deadline = time.monotonic() + self.calls[0].seconds if self.calls else float('inf')
