"""The state of one collector, which is the same whether it works in this process or in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.utils.schema import COUNT, DICT, INT, LIST, Schema, check_state, part_of
from rlframe.worker.collector.base_serial_collector import ISerialCollector, SerialCollector
from rlframe.worker.collector.battle_collector import PlayerCollector
from rlframe.worker.collector.episode_log import EpisodeLog, with_ended

COUNTED: Schema = {'log': DICT, 'last_print_iter': INT, 'discarded': COUNT}
"""Parts of the state of a ``SerialCollector`` that one with actors keeps itself."""
APART = 'apart'
"""Key of all else in the state of a collector with one actor, which is that of the actor's own collector."""
NOTHING = {
    'to_reset': [],
    'ready': [],
    'held': [],
    'players': [],
    'last_print_iter': 0,
    'discarded': 0,
    'counts': [0, 0, 0, 0],
    'rng': None,
    'at_random': False,
}
"""What is apart at the start."""
OF_ACTOR = ('acting', 'rng', 'at_random')
"""Keys of the state of a worker beside its collector."""


def as_one(
    kind: type[ISerialCollector], state: Mapping[str, Any], actor: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the state of the only actor's collector, with the counts that are kept here; all else is apart."""
    apart = {**state, **actor}
    del apart['actors']
    own = dict(apart.pop('collector'))
    if issubclass(kind, SerialCollector):
        own['log'] = with_ended(own['log'], state['log'])
        own['last_print_iter'] = state['last_print_iter']
        own['discarded'] += state['discarded']
    return {**own, APART: apart}


def of_one(kind: type[ISerialCollector], one: Mapping[str, Any], acting: Any) -> dict[str, Any]:
    """Returns the state of a collector with one actor, from that of one with or without an actor."""
    no_log = EpisodeLog(0).state_dict()
    state = {**NOTHING, 'log': no_log, 'acting': acting, **one.get(APART, {})}
    own = {name: value for name, value in one.items() if name != APART}
    if issubclass(kind, SerialCollector):
        check_state(own, COUNTED)
        state |= {name: own[name] for name in COUNTED} | {'log': with_ended(no_log, own['log'])}
        own |= {'log': with_ended(own['log'], no_log), 'discarded': 0}
    if issubclass(kind, PlayerCollector):
        state['players'] = part_of(own, 'recorder', {'window': LIST})['window']
    actor = {'collector': own, **{name: state[name] for name in OF_ACTOR if name in state}}
    return {**state, 'actors': [actor]}
