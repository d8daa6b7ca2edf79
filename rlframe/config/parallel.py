"""Rules of parallel mode: combinations of options that no component can judge alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.config.schema import LOOPBACK
from rlframe.errors import ConfigError
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.utils.field import check_values
from rlframe.utils.secrets import REDACTED, is_secret_name

Known = Mapping[str, Any]
"""Dotted keys to values, of those options that are possible alone."""
COMMANDER = 'policy.other.commander'
"""Section of the commander."""
COLLECTOR, EVALUATOR = 'policy.collect.collector', 'policy.eval.evaluator'
"""Sections of the serial collector and evaluator that a parallel collector drives."""
SENDERS = ('coordinator', 'comm_collector', 'comm_learner')
"""Sections with options of a transport."""
ELSEWHERE = ('host', 'port', 'path_data')
"""Options of transports that have a place of their own in the config."""
WITHOUT_ADDRESS = {'in_process': 'threads of one process', 'ray': 'actors of one Ray cluster'}
"""Transports that use neither the address of the coordinator nor a shared folder, and what they connect."""
BUFFER = 'policy.other.replay_buffer'
"""Section of the replay buffer."""
OF_PLAYERS = ('sample_1v1', 'episode_1v1')
"""Serial collectors of games."""
OF_ONE = ('sample', 'episode')
"""Serial collectors of envs with one player."""


def parallel_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes between the components of parallel mode."""
    found = (
        _same_transport(known),
        *_local_backends(known),
        _fits_players(known),
        _plays_a_league(known),
        _has_no_past_selves(known),
        _collects_and_scores_episodes(known),
        _same_turns(known),
        _takes_turns(known),
        _keeps_its_buffer(known),
        *_no_address(known),
        *_known_to_the_transport(known),
        _one_token(known),
    )
    return [error for error in found if error]


def _same_transport(known: Known) -> ConfigError | None:
    ours, key = known.get('parallel.comm_collector.type'), 'parallel.comm_learner.type'
    if key not in known or ours is None or known[key] == ours:
        return None
    return ConfigError(
        'collectors and learners reach their coordinator by the same transport',
        where=key,
        got=known[key],
        expected=f'parallel.comm_collector.type ({ours!r})',
    )


def _local_backends(known: Known) -> list[ConfigError]:
    return [
        ConfigError(
            'in parallel mode, each collector steps its envs in its own process',
            where=key,
            got=known[key],
            expected="'local'",
            remedy='parallel.collector_num sets the number of collectors.',
        )
        for key in (f'{COLLECTOR}.backend', f'{EVALUATOR}.backend')
        if known.get(key, 'local') != 'local'
    ]


def _fits_players(known: Known) -> ConfigError | None:
    key, serial = 'parallel.collector.type', known.get(f'{COLLECTOR}.type')
    drives = {'zergling': OF_ONE, 'marine': OF_PLAYERS}.get(known.get(key, ''))
    if drives is None or serial not in (*OF_ONE, *OF_PLAYERS) or serial in drives:
        return None
    what = 'games of several players' if serial in OF_PLAYERS else 'envs with one player'
    return ConfigError(
        f'the collector {serial!r} ({COLLECTOR}.type) is for {what}',
        where=key,
        got=known[key],
        expected="'marine'" if serial in OF_PLAYERS else "'zergling'",
    )


def _plays_a_league(known: Known) -> ConfigError | None:
    key = f'{COLLECTOR}.type'
    if known.get(f'{COMMANDER}.type') != 'one_vs_one' or known.get(key) not in OF_ONE:
        return None
    return ConfigError(
        "the commander 'one_vs_one' trains in games of two players",
        where=key,
        got=known[key],
        expected=' or '.join(map(repr, OF_PLAYERS)),
        remedy="Choose an env of two players, or the commander 'solo'.",
    )


def _has_no_past_selves(known: Known) -> ConfigError | None:
    key = f'{COLLECTOR}.past_selves.snapshot_freq'
    if known.get(key) is None:
        return None
    return ConfigError(
        'in parallel mode, the commander chooses the opponents',
        where=key,
        got=known[key],
        expected='None',
        remedy=f"Use the commander 'one_vs_one', with {COMMANDER}.league.snapshot_freq.",
    )


def _collects_and_scores_episodes(known: Known) -> ConfigError | None:
    for key, kind, why in (
        (f'{COLLECTOR}.type', 'dataset', 'recorded data need no collectors'),
        (f'{COLLECTOR}.type', 'tensor', 'its rows stay on the device of the policy'),
        (f'{EVALUATOR}.type', 'metric', 'collectors play the episodes of evaluations'),
    ):
        if known.get(key) == kind:
            message = f'there is no parallel mode with it: {why}'
            return ConfigError(message, where=key, got=kind, remedy='Train in serial mode: -m serial.')
    return None


def _same_turns(known: Known) -> ConfigError | None:
    key, other = 'parallel.comm_learner.lockstep', f'{COMMANDER}.lockstep'
    if key not in known or other not in known or known[key] == known[other]:
        return None
    return ConfigError(
        'commander and learner have to agree on whether collection and training take turns',
        where=key,
        got=known[key],
        expected=f'{other} ({known[other]})',
    )


def _takes_turns(known: Known) -> ConfigError | None:
    key = 'parallel.collector_num'
    if not known.get(f'{COMMANDER}.lockstep') or known.get(key, 1) == 1:
        return None
    return ConfigError(
        f'in lockstep ({COMMANDER}.lockstep), one collector takes turns with the learner',
        where=key,
        got=known[key],
        expected='1',
    )


def _keeps_its_buffer(known: Known) -> ConfigError | None:
    key = f'{BUFFER}.device'
    if known.get(key, 'cpu') == 'cpu':
        return None
    return ConfigError(
        'in parallel mode, the coordinator keeps the replay buffer and sends batches to learners',
        where=key,
        got=known[key],
        expected="'cpu'",
        remedy='In serial mode, -m serial, the replay buffer can be on the GPU of the policy.',
    )


def _no_address(known: Known) -> list[ConfigError]:
    """Returns errors for an address or a folder if the transport has none."""
    kind = known.get('parallel.comm_collector.type')
    if kind not in WITHOUT_ADDRESS:
        return []
    expected = {
        'parallel.coordinator.host': LOOPBACK,
        'parallel.coordinator.port': (None,),
        'parallel.path_data': (None,),
    }
    return [
        ConfigError(
            f'the transport {kind!r} connects {WITHOUT_ADDRESS[kind]}: it has neither host and port nor a folder',
            where=key,
            got=known[key],
            expected=repr(allowed[0]),
            remedy="comm_collector and comm_learner of type 'flask_fs' have both.",
        )
        for key, allowed in expected.items()
        if key in known and known[key] not in allowed
    ]


def _known_to_the_transport(known: Known) -> list[ConfigError]:
    """Returns errors for options that the transport does not have, or not with such values."""
    kind = known.get('parallel.comm_collector.type')
    errors: list[ConfigError] = []
    for section in SENDERS:
        key, given = f'parallel.{section}.transport', known.get(f'parallel.{section}.transport')
        if not given or not isinstance(kind, str) or kind not in TRANSPORT_REGISTRY:
            continue
        given = {name: value for name, value in given.items() if value != REDACTED}
        ours = TRANSPORT_REGISTRY.get(kind)
        fields = (ours.server_cls if section == 'coordinator' else ours).config_fields()
        found = check_values(given, {name: field for name, field in fields.items() if name not in ELSEWHERE})
        for error in found[1]:
            is_secret = is_secret_name(error.where)
            errors.append(
                ConfigError(
                    error.message,
                    where=f'{key}.{error.where}',
                    got='***' if is_secret else error.got,
                    expected=error.expected,
                    remedy=error.remedy,
                )
            )
    return errors


def _one_token(known: Known) -> ConfigError | None:
    """Returns an error if two roles have different tokens; it shows neither."""
    given = {
        key: token
        for key in (f'parallel.{section}.transport' for section in SENDERS)
        if (token := (known.get(key) or {}).get('token')) is not None
    }
    if len({*map(str, given.values())}) < 2:
        return None
    first, *others = given
    differing = next(key for key in others if given[key] != given[first])
    remedy = 'Set the same one, or none of them and the environment variable RLFRAME_TOKEN.'
    return ConfigError(f'its token is not that of {first}', where=f'{differing}.token', remedy=remedy)
