"""Damaged or foreign states of collectors are refused, and the bad part is named."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fake_ray import fake_ray
from fakes import ScriptedPolicy, counting_manager
from games import turn_games
from test_dataset_collector import COLUMNS
from test_dataset_collector import Policy as DatasetPolicy

from rlframe.backend.ray.collector import RayCollector
from rlframe.errors import CheckpointMismatchError, CheckpointStateError
from rlframe.worker import (
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
    EpisodeSerialCollector,
    SampleSerialCollector,
)
from rlframe.worker.collector import DatasetSerialCollector

OTHERS: tuple[Any, ...] = (None, 'x', -1, [None], np.zeros(3, complex))
FREE = {
    ('ray', 'actors.*'): 'an actor whose state could not be fetched has none',
    ('ray', 'actors.*.acting'): 'a policy without an acting state has none',
    ('ray', 'actors.*.rng'): 'the actor itself checks it',
    ('ray', 'actors.*.collector'): 'the actor itself checks it',
}


def dataset() -> Any:
    return DatasetSerialCollector({}, data=COLUMNS, policy=DatasetPolicy(batch_size=6).collect_mode)


def sample() -> Any:
    return SampleSerialCollector({}, counting_manager(2), ScriptedPolicy(nstep=2).collect_mode)


def episode() -> Any:
    return EpisodeSerialCollector({}, counting_manager(2, lengths=[3]), ScriptedPolicy().collect_mode)


def battle_sample() -> Any:
    return BattleSampleSerialCollector({}, turn_games(2, players=2), ScriptedPolicy().collect_mode)


def battle() -> Any:
    return BattleEpisodeSerialCollector({}, turn_games(2, players=2), ScriptedPolicy().collect_mode)


MAKERS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    'dataset': (dataset, {}),
    'sample': (sample, {'n_sample': 5, 'level_seeds': [3, 4]}),
    'episode': (episode, {'n_episode': 2}),
    'battle_sample': (battle_sample, {'n_sample': 7}),
    'battle': (battle, {'n_episode': 2}),
}


@contextmanager
def made(kind: str) -> Iterator[Any]:
    """Yields a collector that has collected once."""
    if kind != 'ray':
        make, options = MAKERS[kind]
        collector = make()
        collector.collect(**options)
        yield collector
        return
    with fake_ray() as ray:
        ray.answers['state'] = {'collector': {'discarded': 0}, 'acting': None, 'rng': None, 'at_random': True}
        collector = RayCollector('CartPole-v1', None, frames_per_batch=6, num_collectors=2)
        collector.next()
        yield collector


def places(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each part of a state that schemas of collectors are about."""
    if path[:1] in (('env',), ('rollout',), ('log',)) and len(path) > 1:
        return  # envs, rollouts and logs have tests of their own
    if path:
        yield path
    if isinstance(state, dict) and path[-1:] != ('rng',) and 'bit_generator' not in state:
        for name, part in state.items():
            yield from places(part, (*path, name))
    elif isinstance(state, list) and state:
        yield from places(state[0], (*path, 0))


def dotted(path: tuple[Any, ...]) -> str:
    return '.'.join('*' if isinstance(name, int) else str(name) for name in path)


def changed(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = copy.copy(state)
    copied[path[0]] = changed(state[path[0]], path[1:], value)
    return copied


@pytest.mark.parametrize('kind', [*MAKERS, 'ray'])
def test_a_part_that_is_missing_or_of_another_kind_is_refused_by_its_name(kind: str) -> None:
    refused = 0
    optional = {'levels', 'pool', 'ranks', 'publisher', 'unsaved'}
    with made(kind) as collector:
        state = collector.state_dict()
        for path in places(state):
            if (kind, dotted(path)) in FREE:
                continue
            for value in OTHERS:
                try:
                    collector.load_state_dict(changed(state, path, value))
                except CheckpointMismatchError as error:
                    assert error.where == 'policy.collect.collector.num_collectors' and path == ('actors',)
                except CheckpointStateError as error:
                    assert error.where.startswith(str(path[0])), (path, value, error)
                    refused += 1
            collector.load_state_dict(state)
        for name in sorted(set(state) - optional):
            with raises(CheckpointStateError):
                collector.load_state_dict({other: state[other] for other in state if other != name})
    assert refused > 12
