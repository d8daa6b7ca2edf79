"""The names of ``rlframe.worker`` take the parameters that DI-engine's users know, in the same order."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from fakes import ScriptedPolicy, counting_manager

import rlframe.worker
from rlframe.worker import (
    AdvancedReplayBuffer,
    BaseLearner,
    BaseSerialCommander,
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
    Coordinator,
    EpisodeReplayBuffer,
    EpisodeSerialCollector,
    FlaskFileSystemCollector,
    FlaskFileSystemLearner,
    IBuffer,
    IMetric,
    ISerialCollector,
    ISerialEvaluator,
    LearnerHook,
    MarineParallelCollector,
    NaiveReplayBuffer,
    SampleSerialCollector,
    SequenceReplayBuffer,
    ZerglingParallelCollector,
)

API = json.loads((Path(__file__).parent / 'public_api.json').read_text(encoding='utf-8'))['ding.worker']

STILL_TO_COME: set[str] = set()

TORCHRL = (
    *('add_collectors', 'remote_collectors', 'stop_remote_collectors', 'iterator', 'shutdown'),
    *('update_policy_weights_', 'set_seed', 'state_dict', 'load_state_dict'),
)
"""Methods of TorchRL's RayCollector."""


class _Hook(LearnerHook):
    position = 'after_iter'

    def __call__(self, learner: Any) -> None: ...


INSTANCES = {
    'ISerialCollector': lambda: SampleSerialCollector({}),
    'SampleSerialCollector': lambda: SampleSerialCollector(
        {}, counting_manager(1), ScriptedPolicy().collect_mode
    ),
    'EpisodeSerialCollector': lambda: EpisodeSerialCollector({}),
    'BattleSampleSerialCollector': lambda: BattleSampleSerialCollector({}),
    'BattleEpisodeSerialCollector': lambda: BattleEpisodeSerialCollector({}),
    'BaseLearner': lambda: BaseLearner({}, ScriptedPolicy().learn_mode),
    'LearnerHook': _Hook,
    'NaiveReplayBuffer': lambda: NaiveReplayBuffer({'replay_buffer_size': 4}),
    'EpisodeReplayBuffer': lambda: EpisodeReplayBuffer({}),
    'SequenceReplayBuffer': lambda: SequenceReplayBuffer({}),
    'AdvancedReplayBuffer': lambda: AdvancedReplayBuffer({'replay_buffer_size': 4}),
    'BaseSerialCommander': lambda: BaseSerialCommander({}, None, None, None, None, None),
    'BaseParallelCollector': ZerglingParallelCollector,
    'ZerglingParallelCollector': ZerglingParallelCollector,
    'MarineParallelCollector': MarineParallelCollector,
    'BaseCommCollector': FlaskFileSystemCollector,
    'FlaskFileSystemCollector': FlaskFileSystemCollector,
    'BaseCommLearner': FlaskFileSystemLearner,
    'Coordinator': lambda: Coordinator({'policy': {}}),
    'FlaskFileSystemLearner': FlaskFileSystemLearner,
}
HERE = [name for name in API if name not in STILL_TO_COME]


def assert_takes(function: Any, names: list[str]) -> None:
    """Checks that ``function`` can be called with ``names`` positionally, in order, and needs nothing more."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ('self', 'cls')]
    if '*args' in names:
        names = names[: names.index('*args')]
        if not names:
            return
    wanted = [name for name in names if not name.startswith('*')]
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    accepts_all = any(p.kind is p.VAR_POSITIONAL for p in parameters) and any(
        p.kind is p.VAR_KEYWORD for p in parameters
    )
    assert accepts_all or own[: len(wanted)] == wanted, f'{own} instead of {wanted}'
    if '**kwargs' in names:
        assert any(p.kind is p.VAR_KEYWORD for p in parameters)
    more = [p for p in parameters if p.name not in wanted and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    assert all(p.default is not p.empty for p in more), f'{more} have no default'


def test_every_name_is_here_or_on_the_list_of_those_to_come() -> None:
    assert set(API) - set(rlframe.worker.__all__) == STILL_TO_COME
    assert set(rlframe.worker.__all__) - set(API) == {
        'RayCollector',  # TorchRL's, not DI-engine's
        'BaseParallelCommander',
        'create_commander',
        'EvalMetric',
        'ScheduleRule',
        'PlayedEpisodes',
    }


@pytest.mark.parametrize('name', HERE)
def test_public_name_has_the_known_parameters_and_a_docstring(name: str) -> None:
    thing, facts = getattr(rlframe.worker, name), API[name]
    assert inspect.getdoc(thing)
    if 'function' in facts:
        assert_takes(thing, facts['function'])
        return
    if name not in ('ISerialCollector', 'ISerialEvaluator', 'IBuffer'):
        assert_takes(thing.__init__, facts['init'])
    for method, parameters in facts['methods'].items():
        assert inspect.getdoc(getattr(thing, method)), f'{name}.{method} has no docstring'
        assert_takes(getattr(thing, method), parameters)
    if facts['properties']:
        instance = INSTANCES[name]()
        for attribute in facts['properties']:
            assert hasattr(instance, attribute), f'{name} has no {attribute}'


@pytest.mark.parametrize('method', TORCHRL)
def test_ray_collector_has_the_methods_of_torchrl(method: str) -> None:
    assert inspect.getdoc(getattr(rlframe.worker.RayCollector, method))


def test_interfaces_are_abstract() -> None:
    for interface in (ISerialCollector, ISerialEvaluator, IBuffer, IMetric):
        assert inspect.isabstract(interface)
