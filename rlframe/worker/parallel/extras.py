"""What travels with training data in parallel mode if a policy has more state than its weights.

Acting changes a policy: its random generator, and the running statistics of a normaliser. In lockstep, the whole acting
state goes from the learner to the collector with the weights, and back to the learner with the data, so that a run
equals a serial one bit for bit. Otherwise, each collector reports the statistics that it gathered, and the learner adds
them to its own.

Learners that train together get the average of their networks with their next data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.faces import acting_of
from rlframe.errors import InterfaceError

ACTING, STATISTICS = 'acting', 'statistics'
"""Names of the acting state, beside weights and data, and of the statistics before and after collection."""
AVERAGED = 'averaged'
"""Name of what learners average. Beside weights: the networks that collectors do not need, and None for those among
the weights; beside data: all networks. As a setting of a task: whether the learner has to publish after each round."""


class ActingExtras:
    """Measures what a call of ``collect`` changes in a policy beside its memory of episodes.

    Args:
        face: Collect face of the policy.
        in_lockstep: Whether the whole acting state is passed on.
    """

    def __init__(self, face: Any, in_lockstep: bool) -> None:
        self._acting, self._in_lockstep = acting_of(face), in_lockstep
        self._before = {} if self._acting is None or in_lockstep else dict(self._acting.statistics())

    def take(self) -> dict[str, Any]:
        """Returns the extras to send with the collected data."""
        if self._acting is not None and self._in_lockstep:
            return {ACTING: self._acting.state()}
        if not self._before:
            return {}
        return {STATISTICS: [{'before': self._before, 'after': dict(self._acting.statistics())}]}


def take_in(face: Any, extras: Mapping[str, Any]) -> None:
    """Brings a learner's policy to the state that its collectors report."""
    acting = acting_of(face) if extras else None
    if acting is None:
        return
    if ACTING in extras:
        acting.load_state(extras[ACTING])
    for change in extras.get(STATISTICS, ()):
        acting.absorb(change['before'], change['after'])


def networks_beside(policy: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the networks of a policy that several learners average; None for those that are among its weights.

    Args:
        policy: Learn face of the policy.
        weights: What collectors get.

    Raises:
        InterfaceError: If the policy does not say which parts of its state are networks.
    """
    state, names = policy.state_dict(), _networks(policy)
    if missing := [name for name in names if name not in state]:
        raise InterfaceError(
            f'several learners average parts of the state that the policy does not have: {missing}',
            where='the networks of the policy',
            expected=f'names among {sorted(state)}',
            remedy='Define _get_networks in the policy.',
        )
    return {name: None if name in weights else state[name] for name in names}


def load_networks(policy: Any, networks: Mapping[str, Any]) -> None:
    """Gives the learn face of a policy other networks; all else stays, its optimizer's state, for example."""
    policy.load_state_dict({**policy.state_dict(), **networks})


def _networks(policy: Any) -> tuple[str, ...]:
    try:
        return tuple(policy.get_attribute('networks'))
    except AttributeError:
        return ('model',)
