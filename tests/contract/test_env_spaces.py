"""Every registered env manager hands out observations of every kind of space, true to what the envs gave."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from fakes import manager_of
from quick_workers import forked_workers, quick_workers  # noqa: F401
from space_envs import ACTIONS, OBS, SpaceEnv

from rlframe.data import Batch
from rlframe.data.composite import by_rows
from rlframe.data.observation import fields_of, obs_dtype
from rlframe.envs import BaseEnvManager, IEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import (
    ActionError,
    EnvContractError,
    EnvContractWarning,
    IncompatibleError,
    NonFiniteError,
)
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.worker.collector.rollout import Rollout

MANAGERS = [
    (name, {})
    for name in ENV_MANAGER_REGISTRY.names()
    if name not in ('env_pool', 'async_subprocess', 'torch_vector')
] + [
    ('async_subprocess', {'wait_num': 3}),
    ('gym_vector', {'autoreset': 'SAME_STEP'}),
    ('gym_vector', {'autoreset': 'DISABLED'}),
]
SEEDS = [5, 6, 7]


def assert_same(space: gymnasium.Space, obs: Any, row: Any) -> None:
    parts = fields_of(space)
    if not parts:
        np.testing.assert_array_equal(row, obs)
    for i, (name, part) in enumerate(parts.items()):
        assert_same(part, obs[i] if isinstance(obs, tuple) else obs[name], row[name])


FIRST, *OTHERS = MANAGERS
"""The manager that is tried with everything, and those that are tried with what they may treat in their own way."""


def cells(every: Any, some: Any, managers: Any = OTHERS) -> list[Any]:
    """Returns pairs of a manager and a case: the first manager with every case, the others with some."""
    pairs = [(FIRST, case) for case in every] + [(manager, case) for manager in managers for case in some]
    return [
        pytest.param(
            manager,
            case,
            id=f'{manager}-{case}',
            marks=[pytest.mark.slow] if manager[0] == 'async_subprocess' else [],
        )
        for manager, case in pairs
    ]


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[IEnvManager] = []

    def build(manager: Any, env_id: Any = SpaceEnv, env_num: int = 3, **options: Any) -> IEnvManager:
        made.append(manager_of(manager, GymEnvFactory({'env_id': env_id, **options}), env_num))
        return made[-1]

    yield build
    for manager in made:
        manager.close()


class Acting:
    """Plays actions drawn from a seed."""

    def __init__(self, space: gymnasium.Space) -> None:
        self._space, self.reset = space, lambda env_id: None
        space.seed(0)

    def forward(self, obs: Any, env_id: Any) -> Batch:
        return Batch(action=np.stack([self._space.sample() for _ in env_id]))


def check_against_env(manager: IEnvManager, env: Any, steps: int = 25) -> None:
    """Makes sure that a manager's rows are what bare envs with the same seeds and actions give."""
    space = env().observation_space
    bare, before = [env() for _ in SEEDS], {}
    for i, seed in enumerate(SEEDS):
        before[i] = bare[i].reset(seed=seed)[0]
    manager.reset(seed=SEEDS)
    acting: Any = by_rows(env().action_space)
    as_declared = getattr(acting, 'of_rows', lambda action: action)
    rollout = Rollout(manager, Acting(acting))
    ends = 0
    for _ in range(steps):
        step = rollout.step()
        assert step.obs.dtype == step.timestep.obs.dtype == obs_dtype(space)[0]
        for i, own in enumerate(step.timestep.env_id.tolist()):
            obs, reward, terminated, _, _ = bare[own].step(as_declared(step.output['action'][i]))
            assert_same(space, before[own], step.obs[i])
            assert_same(space, obs, step.timestep.obs[i])
            assert (reward, terminated) == (step.timestep.reward[i], step.timestep.terminated[i])
            ends += terminated
            before[own] = bare[own].reset()[0] if terminated else obs
    assert ends >= 3


@pytest.mark.parametrize(('manager', 'obs'), cells(OBS, ['Discrete', 'Dict', 'Tuple']))
def test_rows_are_what_the_envs_gave(make: Any, manager: Any, obs: str) -> None:
    check_against_env(make(manager, kwargs={'obs': obs}), partial(SpaceEnv, obs))


@pytest.mark.parametrize(('manager', 'action'), cells(ACTIONS, ['MultiDiscrete', 'Box', 'Dict']))
def test_every_kind_of_action_reaches_the_envs(make: Any, manager: Any, action: str) -> None:
    check_against_env(make(manager, kwargs={'action': action}), partial(SpaceEnv, action=action))


@pytest.mark.parametrize(
    'manager', [own for own in MANAGERS if not own[1] and own[0] != 'async_subprocess'], ids=str
)
def test_state_of_structured_observations_continues(make: Any, manager: Any) -> None:
    envs, other = make(manager, kwargs={'obs': 'Dict'}), make(manager, kwargs={'obs': 'Dict'})
    envs.reset(seed=SEEDS), other.reset(seed=[1, 2, 3])
    action = np.full(3, 2)
    for _ in range(3):
        envs.step(action, envs.ready)
    envs.restart_lost()
    other.load_state_dict(envs.state_dict())
    for _ in range(3):
        one, two = envs.step(action, envs.ready), other.step(action, other.ready)
        assert np.array_equal(one.obs, two.obs) and np.array_equal(one.reward, two.reward)


BAD_ACTIONS: dict[str, tuple[str, Any]] = {
    'class': ('Discrete', [2, 3, 9]),
    'one of several': ('MultiDiscrete', [[0, 1], [1, 1], [0, 2]]),
    'fraction': ('MultiDiscrete', [[0, 0.5], [1, 1], [0, 1]]),
    'bit': ('MultiBinary', [[0, 1], [2, 1], [0, 1]]),
    'overflow': ('MultiBinary', [[0, 1], [256, 1], [0, 1]]),
    'beyond': ('Box', [[0, 0.5], [1, 1], [0, 2.0]]),
    'part': ('Dict', [[1, 0, 0, 1], [2, 0.5, 1, 1], [1.5, 0, 0, 1]]),
}
TELLING = [own for own in OTHERS if 'async' not in str(own)]
"""Managers that raise what an env says of an action in the same step."""


@pytest.mark.parametrize(('manager', 'case'), cells(BAD_ACTIONS, ['class', 'fraction', 'overflow'], TELLING))
def test_an_action_outside_the_space_is_refused_with_value_and_space(
    make: Any, manager: Any, case: str
) -> None:
    kind, action = BAD_ACTIONS[case]
    envs = make(manager, kwargs={'action': kind})
    envs.reset(seed=SEEDS)
    with raises(ActionError):
        envs.step(np.array(action), envs.ready)


class Wrong(SpaceEnv):
    """Gives a Dict observation that is wrong from the third step, or from step 20, on."""

    def __init__(self, wrong: str = '', at: int = 3) -> None:
        super().__init__('Dict')
        self._wrong, self._at, self._count = wrong, at, 0

    def step(self, action: Any) -> Any:
        obs, *others = super().step(action)
        self._count += 1
        if self._count >= self._at:
            other = {**obs['other'], **OTHER.get(self._wrong, {})}
            obs = {**obs, 'other': other, **TOP.get(self._wrong, {})}
            if self._wrong == 'missing':
                del obs['half']
            obs = {'list': [1, 2], 'array': np.zeros(3)}.get(self._wrong, obs)
        return obs, *others


OTHER: dict[str, Any] = {
    'nan': {'noise': np.array([0, np.nan, 0])},
    'shape': {'noise': np.zeros(4)},
    'text': {'noise': np.array(['a', 'b', 'c'])},
    'range': {'noise': np.full(3, 7.0)},
}
TOP: dict[str, Any] = {'more': {'third': 1}, 'float': {'half': 0.5}}
ERRORS: dict[str, Any] = {
    'nan': NonFiniteError,
    'shape': EnvContractError,
    'text': EnvContractError,
    'missing': EnvContractError,
    'more': EnvContractError,
    'list': EnvContractError,
    'array': EnvContractError,
}


@pytest.mark.parametrize(
    ('manager', 'wrong', 'at'),
    [
        *(pytest.param(FIRST, wrong, 20, marks=pytest.mark.slow) for wrong in ERRORS),
        *((FIRST, wrong, 3) for wrong in ('nan', 'missing')),
        pytest.param(('subprocess', {}), 'missing', 20, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_field_names_the_field(make: Any, manager: Any, wrong: str, at: int) -> None:
    envs = make(manager, Wrong, 2, kwargs={'wrong': wrong, 'at': at})
    envs.reset(seed=[1, 2])
    rollout = Rollout(envs, Acting(ACTIONS['Discrete'][0]))
    with raises(ERRORS[wrong]):
        for _ in range(40):
            rollout.step()


@pytest.mark.parametrize(
    ('wrong', 'words'),
    [('range', r"\['noise'\] that lies in \[7, 7\]"), ('float', r"\['half'\] of dtype float64")],
)
def test_loose_ends_of_a_field_are_remarked_once(wrong: str, words: str) -> None:
    manager = BaseEnvManager([partial(Wrong, wrong)] * 2)
    manager.reset(seed=[1, 2])
    with pytest.warns(EnvContractWarning, match=words):
        for _ in range(6):
            step = manager.step(np.full(2, 2), manager.ready)
    if wrong == 'float':
        assert (step.obs['half'] == 0).all()


def test_bounds_of_every_kind_are_known() -> None:
    from rlframe.envs import contract

    space = gymnasium.spaces.Tuple([OBS[kind][0] for kind in ('Discrete', 'MultiDiscrete', 'MultiBinary')])
    for obs, count in [
        ((3, np.array([1, 2]), np.array([0, 1], np.int8)), 0),
        ((7, np.array([1, 3]), np.array([0, 2], np.int8)), 3),
    ]:
        remarks = contract.Remarks(hold=True)
        spec: Any = SimpleNamespace(observation_space=space, name='x')
        contract.first_obs((obs, {}), spec, 0, 1, remarks)
        assert len(remarks.held) == count


def test_envs_whose_fields_differ_are_refused() -> None:
    with raises(IncompatibleError):
        BaseEnvManager([SpaceEnv, partial(SpaceEnv, 'Dict')])
