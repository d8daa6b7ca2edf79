"""HeldWeights: which weights the policies of a parallel collector have, and how they get newer ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.faces import ACTING, acting_of
from rlframe.parallel.transport.messages import Weights
from rlframe.utils.every import seconds
from rlframe.utils.field import Section, option

PAUSE = 0.02
"""Seconds between two questions for weights that are not available yet."""


class ParallelCollectorConfig(Section):
    """Options of every parallel collector."""

    print_freq: int = option(
        5,
        range='[1, inf)',
        unit='parts of a task',
        doc='interval between two messages in the log',
        may_change=True,
    )
    compressor: str = option('lz4', ignored='arrays are sent as they are')
    update_policy_second: float = option(
        0.0,
        range='[0, inf)',
        unit='seconds',
        doc='minimum time between two fetches of newer weights',
        may_change=True,
    )
    weights_timeout: float = seconds(
        60.0, 'longest wait for the weights that a task requires; then it is abandoned'
    )


class Held(NamedTuple):
    """The weights that a face has."""

    policy: str = ''
    version: int = -1
    train_iter: int = 0


class TaskAbandoned(Exception):  # noqa: N818  a signal within a worker, which no user sees
    """Ends a task before it is completed; the message says why."""


class Acting(NamedTuple):
    """A policy that acts in a task."""

    slot: int
    face: Any
    """Its face that takes weights."""
    name: str
    """Name of the policy whose weights it gets."""


class HeldWeights:
    """Keeps the version of the weights of each face, and fetches newer ones.

    Args:
        ask: Asks for newer weights of a policy than a version; returns the reply and them, None if there are none.
        check: Called while weights are waited for; an exception that it raises ends the waiting.
        timeout: Seconds to wait for weights that a task requires.
        interval: Minimum number of seconds between two fetches that no task requires.
    """

    def __init__(
        self,
        ask: Callable[[str, int], tuple[Weights, Any]],
        check: Callable[[], None],
        timeout: float,
        interval: float,
    ) -> None:
        self._ask, self._check, self._timeout, self._interval = ask, check, timeout, interval
        self._held: dict[tuple[str, int], Held] = {}
        self._newest: dict[str, int] = {}
        self._asked_at = -np.inf
        self.in_lockstep = False
        """Whether the acting state comes with the weights, and has to go back with the data."""

    def forget(self) -> None:
        """Forgets all versions, so that the weights are fetched again; a coordinator may count anew."""
        self._held, self._newest = {}, {}

    def note(self, policy: str, version: int) -> None:
        """Takes notice of the newest version of a policy's weights."""
        self._newest[policy] = version

    def update(self, role: str, acting: Sequence[Acting], least: int, always: bool) -> Held:
        """Gives each face the weights of its policy, newer ones if needed or ``always``, and returns those of the first.

        Only the first, which is trained, needs the ``least`` version. A worker's policies of two roles are kept apart.

        Raises:
            TaskAbandoned: If the required version did not come in time.
        """
        for place, (slot, face, name) in enumerate(acting):
            held = self._held.get((role, slot), Held())
            held = held if held.policy == name else Held(name)
            needed = least if place == 0 else -1
            if always or self._is_behind(held, needed):
                held = self._fetched(face, held, needed)
            self._held[role, slot] = held
        return self._held[role, acting[0].slot] if acting else Held()

    def _is_behind(self, held: Held, least: int) -> bool:
        if held.version < max(least, 0):
            return True
        is_due = monotonic() - self._asked_at >= self._interval
        return is_due and held.version < self._newest.get(held.policy, -1)

    def _fetched(self, face: Any, held: Held, least: int) -> Held:
        end = monotonic() + self._timeout
        while True:
            self._check()
            newest, weights = self._ask(held.policy, held.version)
            self._asked_at = monotonic()
            if weights is not None:
                self.in_lockstep = _load(face, weights)
                held = Held(held.policy, newest.version, newest.train_iter)
            if held.version >= least:
                return held
            if monotonic() > end:
                raise TaskAbandoned(
                    f'version {least} of the weights of {held.policy!r} did not come in {self._timeout} s; the'
                    f' newest is {newest.version}'
                )
            sleep(PAUSE)


def _load(face: Any, weights: Any) -> bool:
    """Loads weights, and the acting state if it comes with them; returns whether it does."""
    acting = weights.get(ACTING)
    face.load_state_dict({name: tree for name, tree in weights.items() if name != ACTING})
    transfer = acting_of(face) if acting is not None else None
    if transfer is not None:
        transfer.load_state(acting)
    return transfer is not None
