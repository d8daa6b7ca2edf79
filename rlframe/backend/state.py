"""Converts states of collectors between backends: this process, or one Ray actor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.errors import CheckpointMismatchError
from rlframe.utils.seed import global_rng_state

State = Mapping[str, Any]
EPISODES = ('window', 'recent')
"""Keys of the state of an ``EpisodeLog`` that concern finished episodes."""


def in_process(state: State) -> State:
    """Converts a collector's state for a collector in this process.

    Args:
        state: State of a collector in this process, or of one with a single actor and ``sync``.

    Raises:
        CheckpointMismatchError: If the states of several actors would have to be merged.
    """
    if 'actors' not in state:
        return state
    actors = state['actors']
    if len(actors) != 1 or actors[0] is None or len(state['ready']) or state.get('publisher'):
        raise CheckpointMismatchError(
            f'the run was collecting in {len(actors)} Ray actor(s), with more requests in flight than one process can continue',
            where='policy.collect.collector.backend',
            remedy="Resume with backend='ray'; only one synchronous actor that always has the newest weights can be left.",
        )
    own = actors[0]['collector']
    log = {**own['log'], **{name: state['log'][name] for name in EPISODES}}
    counts = {name: state[name] for name in ('last_print_iter', 'discarded')}
    return {**own, 'log': log, **counts}


def in_actor(state: State, acting: Any) -> State:
    """Converts a collector's state for a collector with a single actor.

    Args:
        state: State of a collector in this process, or of one with actors.
        acting: State of the policy that acting changes, apart from its weights.
    """
    if 'actors' in state:
        return state
    log = state['log']
    nothing = {'return': np.zeros(0), 'length': np.zeros(0, np.int64)}
    actor = {**state, 'log': {**log, **{name: np.zeros((0, 3)) for name in EPISODES}}}
    return {
        'actors': [
            {'collector': actor, 'acting': acting, 'rng': global_rng_state(), 'at_random': False},
        ],
        'to_reset': [],
        'ready': [],
        'log': {**log, **nothing},
        'players': state['recorder']['window'] if 'players' in state else np.zeros((0, 0)),
        'last_print_iter': state['last_print_iter'],
        'discarded': state['discarded'],
        'counts': [0, 0, 0, 0],
    }


def from_zero(actor: State) -> State:
    """Returns an actor's state with 0 discarded env steps, as earlier ones are counted elsewhere."""
    return {**actor, 'collector': {**actor['collector'], 'discarded': 0}}


def untold(
    actors: Mapping[int, State | None], headers: Mapping[int, tuple[int, Any]], slots: Mapping[int, Any]
) -> int:
    """Returns the number of env steps that actors discarded since their last answers.

    Args:
        actors: State of each actor, by rank.
        headers: Last answer of each actor, with its incarnation at that time.
        slots: Current incarnation of each actor.
    """
    count = 0
    for rank, state in actors.items():
        incarnation, last = headers.get(rank, (-1, None))
        told = last.counts.discarded if last is not None and incarnation == slots[rank].incarnation else 0
        count += state['collector']['discarded'] - told if state is not None else 0
    return count
