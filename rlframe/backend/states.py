"""What the state of a collector with actors has to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def checked_actors(state: State, count: int) -> list[Any]:
    """Returns the states of the actors in the state of a collector, after checking all of it but the actors' parts.

    Args:
        state: State of a collector with actors.
        count: Number of actors that there should be.

    Raises:
        CheckpointStateError: If a part is missing or invalid.
        CheckpointMismatchError: If there is another number of actors.
    """
    check_state(state, {'actors': LIST})
    actors = list(state['actors'])
    if count != len(actors):
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
