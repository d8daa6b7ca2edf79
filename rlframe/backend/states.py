"""States of collectors in this process and in actors, which continue each other where nothing would be lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.errors import CheckpointMismatchError
from rlframe.utils.schema import (
    COUNT,
    DICT,
    FLAG,
    INT,
    LIST,
    NUMBER,
    Kind,
    Schema,
    array,
    check_state,
    list_of,
    maybe,
)
from rlframe.utils.seed import global_rng_state

State = Mapping[str, Any]
_BY_RANK = Kind(
    'a dict of counts, by rank',
    lambda v: isinstance(v, Mapping) and all(str(rank).isdigit() for rank in v),
    INT,
)
_DATA = Kind('a dict of columns, or a list of such dicts', lambda v: isinstance(v, Mapping | list))
_ACTOR: Schema = {
    'collector': {'discarded': COUNT},
    'acting': maybe(DICT),
    'rng': maybe(DICT),
    'at_random': FLAG,
}
_READY: Schema = {'behind': INT, 'data': _DATA, 'infos': maybe(LIST), 'size': COUNT}
_COUNTS: Schema = {
    'envstep': COUNT,
    'episodes': array('f', (None, 3)),
    'episode_count': COUNT,
    'discarded': COUNT,
    'carried': COUNT,
    'seconds': NUMBER,
    'infos': DICT,
}
_HELD: Schema = {
    'rank': COUNT,
    'train_iter': INT,
    'counts': _COUNTS,
    'statistics': maybe(list_of(DICT, 2)),
    'ready': _READY,
}
_ACTORS: dict[str, Schema] = {
    'pool?': {'next_rank?': COUNT, 'incarnations?': _BY_RANK},
    'to_reset': list_of(COUNT),
    'ready': list_of(_READY),
    'held': list_of(_HELD),
    'publisher?': {'version?': INT, 'weights?': DICT, 'batches?': _BY_RANK},
    'log': DICT,
    'players': LIST,
    'last_print_iter': INT,
    'discarded': COUNT,
    'counts': list_of(COUNT, 4),
}
"""Schema of the state of a collector with actors, apart from the actors."""
_IN_PROCESS: Schema = {'log': DICT, 'last_print_iter': INT, 'discarded': COUNT}
"""The part of the state of a collector in this process that one with actors keeps itself."""
EPISODES = ('window', 'recent')
INFOS = ('info_names', 'info_sums')
"""Keys of the state of an ``EpisodeLog`` that concern finished episodes; the latter are there only if an info had numbers."""


def checked_actors(state: State, count: int | None = None) -> list[Any]:
    """Returns the states of the actors in the state of a collector, after checking all of it but the actors' parts.

    Args:
        state: State of a collector with actors.
        count: Number of actors that there should be; None: any.

    Raises:
        CheckpointStateError: If a part is missing or invalid.
        CheckpointMismatchError: If there is another number of actors.
    """
    check_state(state, {'actors': LIST})
    actors = list(state['actors'])
    if count not in (None, len(actors)):
        raise CheckpointMismatchError(
            f'{len(actors)} actors there, {count} here',
            where='policy.collect.collector.num_collectors',
        )
    for i, actor in enumerate(actors):
        if actor is not None:
            check_state(actor, _ACTOR, f'actors.{i}')
    check_state(state, {**_ACTORS, 'ranks?': list_of(COUNT, len(actors))})
    ranks = state.get('ranks', list(range(len(actors))))
    among = Kind(f'ranks among {ranks}', lambda own: set(map(int, own)) <= set(ranks))
    check_state(state, {'to_reset': among})
    if publisher := state.get('publisher'):
        check_state(publisher, {'version': INT, 'weights': DICT, 'batches': among}, 'publisher')
    return actors


def in_process(state: State) -> State:
    """Converts a collector's state for a collector in this process.

    Args:
        state: State of a collector in this process, or of one with a single actor and ``sync``.

    Raises:
        CheckpointMismatchError: If the states of several actors would have to be merged.
    """
    if 'actors' not in state:
        return state
    actors = checked_actors(state)
    if (
        len(actors) != 1
        or actors[0] is None
        or len(state['ready'])
        or state.get('held')
        or state.get('publisher')
    ):
        raise CheckpointMismatchError(
            f'the run was collecting in {len(actors)} Ray actor(s), with more requests in flight than one process can continue',
            where='policy.collect.collector.backend',
            remedy="Resume with backend='ray'; only one synchronous actor that always has the newest weights can be left.",
        )
    own = actors[0]['collector']
    check_state(own, {'log': DICT}, 'actors.0.collector')
    check_state(state, {'log': dict.fromkeys(EPISODES, array('f'))})
    infos = {name: state['log'][name] for name in INFOS if name in state['log']}
    log = {**own['log'], **{name: state['log'][name] for name in EPISODES}, **infos}
    discarded = state['discarded'] + own['discarded']
    return {**own, 'log': log, 'last_print_iter': state['last_print_iter'], 'discarded': discarded}


def in_actor(state: State, acting: Any) -> State:
    """Converts a collector's state for a collector with a single actor.

    Args:
        state: State of a collector in this process, or of one with actors.
        acting: State of the policy that acting changes, apart from its weights.
    """
    if 'actors' in state:
        return state
    check_state(state, _IN_PROCESS)
    if 'players' in state:
        check_state(state, {'recorder': {'window': LIST}})
    log = state['log']
    nothing = {'return': np.zeros(0), 'length': np.zeros(0, np.int64)}
    running = {name: value for name, value in log.items() if name not in INFOS}
    empty = {name: np.zeros((0, 3)) for name in EPISODES}
    actor = {**state, 'log': {**running, **empty}, 'discarded': 0}
    return {
        'actors': [
            {'collector': actor, 'acting': acting, 'rng': global_rng_state(), 'at_random': False},
        ],
        'to_reset': [],
        'ready': [],
        'held': [],
        'log': {**log, **nothing},
        'players': state['recorder']['window'] if 'players' in state else [],
        'last_print_iter': state['last_print_iter'],
        'discarded': state['discarded'],
        'counts': [0, 0, 0, 0],
    }
