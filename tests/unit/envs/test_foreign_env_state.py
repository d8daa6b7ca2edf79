"""The state of an env that somebody else wrote is data: it makes nothing that acts, and takes no more than it is long."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import gymnasium
import gymnasium.wrappers
import numpy as np
import pytest
from error_texts import raises

import rlframe.envs.gym_env  # noqa: F401  what is not loaded cannot be misused
from rlframe.envs.state import EnvState, MismatchError
from rlframe.errors import CheckpointCorruptError
from rlframe.utils import seed
from rlframe.utils import serialize as bit_state
from rlframe.utils.schema import GENERATOR

Edit = Callable[[dict[str, Any]], None]
INNER = 'CartPoleEnv'


def at(graph: dict[str, Any], place: str) -> dict[str, Any]:
    """Returns the node of what an env had at a place when it was made."""
    return next(node for node in graph['nodes'] if node.get('at') == place)


def add(graph: dict[str, Any], **node: Any) -> list[int]:
    """Adds a node and returns a reference to it."""
    graph['nodes'].append(node)
    return [len(graph['nodes']) - 1]


def restored(edit: Edit, env_id: str = 'CartPole-v1') -> Any:
    """Returns an env that was put into a state that somebody edited."""
    env, other = gymnasium.make(env_id), gymnasium.make(env_id)
    states = EnvState(env), EnvState(other)
    env.reset(seed=0)
    state = dict(states[0].capture())
    graph = json.loads(state['graph'])
    edit(graph)
    arrays = {**state['arrays'], 'bytes': np.zeros(16, np.uint8), 'objects': np.zeros(2, object)}
    states[1].restore({**state, 'graph': json.dumps(graph), 'arrays': arrays})
    return other


@pytest.mark.parametrize(
    'name',
    [
        'gymnasium.wrappers.common:TimeLimit',
        'gymnasium.vector.utils.misc:CloudpickleWrapper',
        'gymnasium.wrappers.transform_reward:TransformReward',  # calls a function: here one that makes an env by a name
        'rlframe.envs.gym_env:GymEnvFactory',
    ],
)
def test_a_state_makes_nothing_of_a_library_that_acts(name: str) -> None:
    def edit(graph: dict[str, Any]) -> None:
        at(graph, INNER)['attributes']['new'] = add(graph, kind='object', attributes={}, **{'class': name})

    with raises(MismatchError):
        restored(edit)


def test_how_an_env_is_shown_and_described_is_not_for_a_state_to_say() -> None:
    def edit(graph: dict[str, Any]) -> None:
        at(graph, INNER)['attributes'] |= {'render_mode': 'human', 'spec': None}

    env = restored(edit)
    assert env.unwrapped.render_mode is None
    assert env.unwrapped.spec.id == 'CartPole-v1'


@pytest.mark.parametrize('kind', ['constant', 'object', 'function'])
def test_what_is_no_state_is_not_filled(kind: str) -> None:
    def edit(graph: dict[str, Any]) -> None:
        name = 'gymnasium.envs.registration:EnvSpec'
        at(graph, INNER)['attributes']['spec'] = add(
            graph,
            kind=kind,
            attributes={'entry_point': 'payload:X'},
            at=f'{INNER}.spec',
            **({'class': name} if kind == 'object' else {'type': name}),
        )

    before = gymnasium.spec('CartPole-v1').entry_point
    with suppress(MismatchError, CheckpointCorruptError):
        restored(edit)
    assert gymnasium.spec('CartPole-v1').entry_point == before


def array(graph: dict[str, Any], name: str = 'bytes') -> list[int]:
    return add(graph, kind='array', name=name, order='C', writeable=True)


BAD: dict[str, Any] = {
    'array of references': lambda graph: array(graph, 'objects'),
    'array that is not there': lambda graph: array(graph, 'none'),
    'negative number': lambda graph: add(graph, kind='list', items=[[-1]]),
    'object as a key': lambda graph: add(graph, kind='dict', items=[[add(graph, kind='list', items=[]), 1]]),
    'another kind': lambda graph: add(graph, kind='partial', items=[]),
}


@pytest.mark.parametrize('value', BAD.values(), ids=BAD)
def test_nodes_that_nobody_wrote_are_refused(value: Any) -> None:
    def edit(graph: dict[str, Any]) -> None:
        at(graph, INNER)['attributes']['new'] = value(graph)

    with pytest.raises(CheckpointCorruptError):
        restored(edit)


def test_a_graph_counts_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    restored(lambda graph: None)
    monkeypatch.setenv('RLFRAME_MAX_STATE_VALUES', '10')
    with raises(CheckpointCorruptError):
        restored(lambda graph: None)


@pytest.mark.parametrize('position', [-1, 625, True])
def test_positions_of_generators_stay_within_their_words(position: Any) -> None:
    def edit(graph: dict[str, Any]) -> None:
        words = np.random.MT19937(0).state['state']['key']
        state = {'key': ['words', words.dtype.str, words.tobytes().hex()], 'pos': position}
        bits = {'bit_generator': 'MT19937', 'state': state}
        at(graph, INNER)['attributes']['new'] = add(graph, kind='bits', name='MT19937', state=bits)

    with raises(CheckpointCorruptError):
        restored(edit)
    for name in ('MT19937', 'Philox'):
        state = getattr(np.random, name)(0).state
        assert GENERATOR.fits(state) and bit_state.checked_bits(state) is state
        (state['state'] if name == 'MT19937' else state)['pos' if name == 'MT19937' else 'buffer_pos'] = (
            position
        )
        with raises(ValueError):
            bit_state.checked_bits(state)
    whole = seed.global_rng_state()
    kind, words, _, *rest = whole['numpy']
    with raises(ValueError):
        seed.set_global_rng_state({**whole, 'numpy': (kind, words, position, *rest)})


class Library(gymnasium.Env[Any, Any]):
    """Holds a module, as some envs do."""

    action_space = observation_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.lib = ModuleType('lib')
        self.lib.answer = 42  # type: ignore[attr-defined]


@pytest.mark.parametrize('kind', ['constant', 'object'])
def test_modules_that_an_env_holds_are_not_filled(kind: str) -> None:
    env = Library()
    held = EnvState(env)
    state = dict(held.capture())
    graph = json.loads(state['graph'])
    at(graph, 'Library.lib').update(
        {'kind': kind, 'class': 'builtins:module', 'type': 'builtins:module', 'attributes': {'answer': 0}}
    )
    with suppress(MismatchError, CheckpointCorruptError):
        held.restore({**state, 'graph': json.dumps(graph)})
    assert env.lib.answer == 42
    held.restore(state)
    assert env.lib.answer == 42


@pytest.mark.parametrize('name', ['MT19937', 'PCG64'])
def test_generators_that_would_only_say_zero_are_refused(name: str) -> None:
    state = getattr(np.random, name)(0).state
    assert bit_state.checked_bits(state) is state
    if name == 'MT19937':
        state['state']['key'] = np.zeros(624, np.uint32)
    else:
        state['state'] = {'state': 0, 'inc': 0}
    with raises(ValueError):
        bit_state.checked_bits(state)
