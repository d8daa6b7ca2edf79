"""Rules of parallel mode: what its components need of each other, and options that it does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlframe.config.rules import BUFFER, COLLECTOR, EVALUATOR, OF_ONE, OF_PLAYERS, Known, bad
from rlframe.config.schema import LOCAL
from rlframe.errors import ConfigError
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.field import check_values
from rlframe.utils.secrets import REDACTED, is_secret_name

COMMANDER = 'policy.other.commander'
"""Section of the commander."""
SENDERS = ('coordinator', 'comm_collector', 'comm_learner')
"""Sections with options of a transport."""
ELSEWHERE = ('host', 'port')
"""Options of transports that have a place of their own in the config."""
_PROCESSES = 'collectors are processes of their own, which collect while learners learn'
_NUMBER = 'parallel.collector_num sets the number of collectors.'
SERIAL_ONLY: dict[str, tuple[Any, str, str]] = {
    f'{COLLECTOR}.backend': (LOCAL, _PROCESSES, _NUMBER),
    f'{EVALUATOR}.backend': (LOCAL, _PROCESSES, _NUMBER),
    f'{COLLECTOR}.overlap': (0, _PROCESSES, _NUMBER),
    f'{BUFFER}.device': (
        'cpu',
        'the coordinator keeps the replay buffer and sends batches to learners',
        'In serial mode, -m serial, the replay buffer can be on the GPU of the policy.',
    ),
    'policy.collect.record': (
        None,
        'nothing is recorded beside training',
        'Record in serial mode: -m serial.',
    ),
    f'{BUFFER}.init_from': (
        None,
        'the replay buffer begins empty',
        'Train in serial mode: -m serial.',
    ),
    'policy.collect.model_path': (
        None,
        'no expert acts',
        'Train in serial mode: -m serial.',
    ),
    'env.schedule': ({}, 'there is no curriculum', 'Train in serial mode, or on Ray.'),
    'env.stop_success': (
        None,
        'commanders compare returns',
        'env.stop_value is one. Or train in serial mode.',
    ),
}
"""Options that parallel mode does not have: the value that they need, why, and the remedy."""


def parallel_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes between the components of parallel mode."""
    return [*_not_in_parallel(known), *_fit_the_commander(known), *_known_to_the_transport(known)]


def _not_in_parallel(known: Known) -> Iterator[ConfigError]:
    """Checks for options without effect in parallel mode."""
    for key, (value, why, remedy) in SERIAL_ONLY.items():
        if known.get(key, value) != value:
            yield bad(known, key, f'in parallel mode, {why}', repr(value), remedy=remedy)
    for key, kind, why in (
        (f'{COLLECTOR}.type', 'dataset', 'recorded data need no collectors'),
        (f'{COLLECTOR}.type', 'tensor', 'its rows stay on the device of the policy'),
        (f'{EVALUATOR}.type', 'metric', 'collectors play the episodes of evaluations'),
    ):
        if known.get(key) == kind:
            message = f'there is no parallel mode with it: {why}'
            yield bad(known, key, message, remedy='Train in serial mode: -m serial.')
    key = 'parallel.coordinator.max_staleness'
    if known.get(key) is not None and not known.get('policy.on_policy', True):
        message = 'it limits the age of fresh data, and this policy learns from a replay buffer'
        yield bad(known, key, message, 'None', remedy=f'{BUFFER}.max_staleness limits the age of its rows.')


def _fit_the_commander(known: Known) -> Iterator[ConfigError]:
    """Checks that commander, collectors and learner fit."""
    ours = known.get('parallel.comm_collector.type')
    key = 'parallel.comm_learner.type'
    if ours is not None and known.get(key, ours) != ours:
        message = 'collectors and learners reach their coordinator by the same transport'
        yield bad(known, key, message, f'parallel.comm_collector.type ({ours!r})')
    key = 'parallel.collector.type'
    serial = known.get(f'{COLLECTOR}.type')
    drives = {'zergling': OF_ONE, 'marine': OF_PLAYERS}.get(known.get(key, ''))
    if drives and serial in (*OF_ONE, *OF_PLAYERS) and serial not in drives:
        what, right = (
            ('games of several players', 'marine')
            if serial in OF_PLAYERS
            else ('envs with one player', 'zergling')
        )
        yield bad(known, key, f'the collector {serial!r} ({COLLECTOR}.type) is for {what}', repr(right))
    if known.get(f'{COMMANDER}.type') == 'one_vs_one' and serial in OF_ONE:
        message = "the commander 'one_vs_one' trains in games of two players"
        remedy = "Choose an env of two players, or the commander 'solo'."
        yield bad(known, f'{COLLECTOR}.type', message, ' or '.join(map(repr, OF_PLAYERS)), remedy)
    key = 'parallel.collector_num'
    if known.get(f'{COMMANDER}.lockstep') and known.get(key, 1) != 1:
        message = f'in lockstep ({COMMANDER}.lockstep), one collector takes turns with the learner'
        yield bad(known, key, message, '1')


def _known_to_the_transport(known: Known) -> list[ConfigError]:
    """Returns errors for options that the transport does not have, or not with such values."""
    kind = known.get('parallel.comm_collector.type')
    errors: list[ConfigError] = []
    for section in SENDERS:
        key = f'parallel.{section}.transport'
        given = known.get(f'parallel.{section}.transport')
        if not given or not isinstance(kind, str) or kind not in TRANSPORT_REGISTRY:
            continue
        given = {name: value for name, value in given.items() if value != REDACTED}
        ours = TRANSPORT_REGISTRY.get(kind)
        fields = (ours.server_cls if section == 'coordinator' else ours).config_fields()
        found = check_values(given, {name: field for name, field in fields.items() if name not in ELSEWHERE})
        for error in found[1]:
            if is_secret_name(error.where):
                error.got = REDACTED
            error.where = f'{key}.{error.where}'
        errors += found[1]
    return errors
