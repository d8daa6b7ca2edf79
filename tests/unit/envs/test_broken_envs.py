"""Every manager notices what is wrong with an env before anybody else sees it: at first in full, ever after what matters."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from broken_envs import EPISODE, OBS, REWARD, BrokenEnv
from error_texts import raises
from fakes import counting_manager
from gymnasium.spaces import Box
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe.envs import BaseEnvManager
from rlframe.envs.contract import CHECKED_STEPS
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import EnvContractError, EnvContractWarning, IncompatibleError, NonFiniteError
from rlframe.registry import ENV_MANAGER_REGISTRY

MANAGERS: dict[str, tuple[str, dict[str, Any]]] = {
    'base': ('base', {}),
    'subprocess': ('subprocess', {'worker_num': 1}),
}
FEW = ('obs of 5', 'obs of texts', 'obs nan', 'reward inf', 'reward none', 'flag array')
"""Faults to look at in workers, which do what ``base`` does."""
EARLY, LATE = 3, 57  # steps of which the second is far behind what is checked in full
LATE_EPISODE = CHECKED_STEPS + 4
WORDS = {
    'obs of 5': ('obs of shape (5,)', 'declared is (4,)'),
    'obs with an axis too many': ('obs of shape (1, 4)',),
    'obs is a number': ('obs of shape ()',),
    'obs of one': ('obs of shape (1,)',),
    'obs of objects': ('obs of dtype object', 'declared is float32'),
    'obs of texts': ('obs of dtype <U1', 'declared is float32'),
    'obs is none': ('obs of shape ()',),
    'obs is ragged': ('no array',),
    'obs complex': ('obs of dtype complex64',),
    'obs nan': ('obs is [', 'nan'),
    'obs inf': ('obs is [', '-inf'),
    'reward nan': ('reward is nan',),
    'reward inf': ('reward is inf',),
    'reward too large': ('reward is 1e+300', 'float32'),
    'reward array': ('reward an array of shape (1,)', 'one number'),
    'reward none': ('reward None', 'one number'),
    'reward text': ("reward '1.5' (str)",),
    'reward list': ('reward [1.0] (list)',),
    'flag int': ('terminated=1 (int)', 'expected a bool'),
    'flag none': ('terminated=None', 'expected a bool'),
    'flag array': ('terminated=an array of shape (1,)', 'expected a bool'),
    'facts are a list': ("the info ['x']", 'expected a dict'),
}


STEPS = [('base', fault, LATE) for fault in (*OBS, *REWARD, 'flag array', 'flag int', 'facts are a list')]
STEPS += [('base', fault, EARLY) for fault in ('flag none', *FEW[:2])]
STEPS += [('subprocess', fault, LATE) for fault in (FEW[0], 'flag none', 'facts are a list')]
RESETS = [('base', fault, LATE_EPISODE) for fault in [*OBS][::3]] + [('base', FEW[0], 1)]
RESETS += [('subprocess', FEW[2], LATE_EPISODE)]


def made(kind: str, env_num: int = 2, **kwargs: Any) -> Any:
    name, options = MANAGERS[kind]
    factory = GymEnvFactory({'env_id': 'broken_envs:BrokenEnv', 'kwargs': kwargs})
    return ENV_MANAGER_REGISTRY.get(name).from_factory(factory, env_num, options)


def play(manager: Any, rounds: int) -> None:
    """Steps all envs that wait for it, so many times."""
    manager.reset()
    for _ in range(rounds):
        step = manager.step(np.zeros(len(manager.ready), np.int64), manager.ready)
        assert step.obs.shape == (len(step.env_id), 4) and step.reward.shape == (len(step.env_id),)
        assert np.isfinite(step.obs).all() and np.isfinite(step.reward).all()
        assert np.isfinite(manager.obs).all()
        if step.done.any():
            manager.reset(step.env_id[step.done])


def assert_refused(manager: Any, fault: str, place: str) -> None:
    finite = 'nan' in fault or 'inf' in fault or 'large' in fault
    with pytest.raises(NonFiniteError if finite else EnvContractError) as caught:
        play(manager, 200)
    for word in (*WORDS[fault], place):
        assert word in str(caught.value)


@pytest.mark.parametrize(('kind', 'fault', 'at'), STEPS)
def test_wrong_step_is_an_error_that_names_env_episode_step_and_value(
    kind: str, fault: str, at: int, opened: Any
) -> None:
    manager = opened(made(kind, fault=fault, at=at))
    episode, step = (at - 1) // EPISODE + 1, (at - 1) % EPISODE + 1
    assert_refused(manager, fault, f'env 0, episode {episode}, step {step}')


@pytest.mark.parametrize(('kind', 'fault', 'at'), RESETS)
def test_wrong_first_obs_is_an_error_in_every_episode(kind: str, fault: str, at: int, opened: Any) -> None:
    manager = opened(made(kind, fault=f'reset: {fault}', at=at))
    assert_refused(manager, fault, f'env 0, episode {at},')


def test_shapes_that_make_up_for_each_other_are_noticed() -> None:
    """Three numbers of one env and five of the next fill the row of the one with those of the other."""
    late = {'on': False}

    class Drifting(BrokenEnv):
        def __init__(self, count: int) -> None:
            super().__init__(length=1000)
            self._count = count

        def step(self, action: Any) -> Any:
            right = super().step(action)
            return (np.zeros(self._count, np.float32), *right[1:]) if late['on'] else right

    manager = BaseEnvManager([partial(Drifting, 3), partial(Drifting, 5)])
    play(manager, 20)
    late['on'] = True
    with raises(EnvContractError):
        manager.step(np.zeros(2, np.int64), manager.ready)


@pytest.mark.parametrize(('env_num', 'wrong'), [(1, np.array([2])), (3, 2.5), (3, None), (3, 'a')])
def test_wrong_numbers_in_place_of_a_state_are_noticed_late_too(env_num: int, wrong: Any) -> None:
    late = {'obs': 2}

    class Grid(BrokenEnv):
        def __init__(self) -> None:
            super().__init__(length=10**6)
            self.observation_space = gymnasium.spaces.Discrete(4)

        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            return 0, {}

        def step(self, action: Any) -> Any:
            return (late['obs'], *super().step(action)[1:])

    manager = BaseEnvManager([Grid] * env_num)
    manager.reset()
    for _ in range(20):
        assert manager.step(np.zeros(env_num, np.int64), manager.ready).obs.tolist() == [2] * env_num
    late['obs'] = wrong
    if wrong == 2.5:  # a number, if not a whole one
        with pytest.warns(EnvContractWarning, match='cuts fractions off'):
            manager.step(np.zeros(env_num, np.int64), manager.ready)
        return
    with raises(EnvContractError):
        manager.step(np.zeros(env_num, np.int64), manager.ready)


def test_large_finite_numbers_are_no_error() -> None:
    manager = counting_manager(2, reward=lambda *place: 3e38)
    manager.reset()
    assert (manager.step(np.zeros(2, np.int64), manager.ready).reward == 3e38).all()


# what is told of, but not refused


def told(kind: str, rounds: int = 60, env_num: int = 3, **kwargs: Any) -> tuple[list[str], Any]:
    """Returns the contract's warnings of a run, and the last obs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        manager = made(kind, env_num, **kwargs)
        play(manager, rounds)
        obs = manager.obs.copy()
        manager.close()
    assert all(warning.category is EnvContractWarning for warning in caught)
    return [str(warning.message) for warning in caught], obs


@pytest.mark.parametrize(('kind', 'where'), [('base', ''), ('subprocess', ''), ('base', 'reset: ')])
def test_doubles_are_converted_and_told_of_once(kind: str, where: str) -> None:
    (text,), obs = told(kind, fault=f'{where}float64')
    assert 'obs of dtype float64' in text and 'declared is float32 in [-1, 1]' in text and 'converted' in text
    assert obs.dtype == np.float32


@pytest.mark.parametrize('where', ['', 'reset: '])
def test_obs_beyond_the_bounds_is_told_of_once_with_both(where: str) -> None:
    for fault, values in (('out of bounds', 'lies in [10, 40]'), ('below the bounds', 'lies in [-40, -10]')):
        (text,), _ = told('base', fault=f'{where}{fault}')
        assert values in text and 'declared is float32 in [-1, 1]' in text


def test_fractions_where_whole_numbers_are_declared_are_told_of_with_both() -> None:
    (text,), obs = told('base', fault='float64', low=0, high=255, dtype='uint8')
    assert 'lies in [0.1, 0.4]' in text and 'declared is uint8 in [0, 255]' in text
    assert 'cuts fractions off' in text and obs.tolist() == [[0] * 4] * 3


def test_nan_where_whole_numbers_are_declared_is_an_error_and_no_zero() -> None:
    manager = made('base', fault='obs nan', at=LATE, low=0, high=255, dtype='uint8')
    assert_refused(manager, 'obs nan', 'env 0, episode 12, step 2')


def test_right_env_is_not_told_of_and_bounds_are_looked_at_at_first_only() -> None:
    assert told('base')[0] == []
    assert told('base', fault='out of bounds', at=LATE, rounds=100)[0] == []


def test_actions_without_values_are_refused_by_dimension() -> None:
    env = BrokenEnv()
    env.action_space = Box(-1, 2, (3,), np.float32)
    env.action_space.low[2], env.action_space.high[2] = 2, -1  # which Gymnasium itself does not allow
    with raises(IncompatibleError):
        BaseEnvManager([lambda: env])


# vector envs of their own make


class Native(gymnasium.vector.VectorEnv):
    """A vector env that answers what it is told to."""

    def __init__(self, mode: str = 'NextStep') -> None:
        self.num_envs = 2
        self.metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode(mode)}
        self.single_observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, 2)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, 2)
        flags = np.zeros(2, bool)
        self.answer = {'obs': np.zeros((2, 4), np.float32), 'reward': np.ones(2)}
        self.answer |= {'terminated': flags, 'truncated': flags}
        self.info: dict[str, Any] = {}

    def reset(self, **kwargs: Any) -> Any:
        return self.answer['obs'], {}

    def step(self, actions: Any) -> Any:
        return (*self.answer.values(), self.info)


NATIVE: list[tuple[str, Any, type[Exception], str]] = [
    ('obs', np.zeros((2, 5), np.float32), EnvContractError),
    ('obs', np.zeros((1, 4), np.float32), EnvContractError),
    ('obs', np.array([[None] * 4] * 2), EnvContractError),
    ('obs', np.full((2, 4), np.nan, np.float32), NonFiniteError),
    ('reward', np.ones((2, 1)), EnvContractError),
    ('reward', np.array([1, np.inf]), NonFiniteError),
    ('terminated', np.zeros(2, int), EnvContractError),
    ('truncated', np.zeros((1, 2), bool), EnvContractError),
]


@pytest.mark.parametrize(('field', 'value', 'error'), NATIVE)
def test_vector_env_of_its_own_make_is_held_to_the_contract_late_too(
    field: str, value: Any, error: type[Exception]
) -> None:
    env = Native()
    manager = GymVectorEnvManager(env)
    play(manager, 20)
    env.answer[field] = value
    with raises(error):
        manager.step(np.zeros(2, np.int64), manager.ready)


def test_first_obs_of_such_an_env_is_checked_and_its_doubles_are_converted() -> None:
    env = Native()
    env.answer['obs'] = np.full((2, 4), np.inf, np.float32)
    manager = GymVectorEnvManager(env)
    with raises(NonFiniteError):
        manager.reset()
    env.answer['obs'] = np.full((2, 4), 0.5)
    with pytest.warns(EnvContractWarning, match='float64.*converted') as caught:
        play(manager, 20)
    assert len(caught) == 1 and manager.obs.dtype == np.float32


def test_first_obs_that_comes_with_a_step_is_checked() -> None:
    right, spoiled = np.zeros((2, 4), np.float32), np.array([[0] * 4, [np.nan] * 4], np.float32)
    over = np.array([False, True])
    env = Native('SameStep')
    manager = GymVectorEnvManager(env)
    play(manager, 20)
    env.answer |= {'obs': spoiled, 'terminated': over}
    env.info = {'final_obs': np.array([None, right[1]], object), '_final_obs': over}
    with raises(NonFiniteError):
        manager.step(np.zeros(2, np.int64), manager.ready)
    env = Native('NextStep')
    manager = GymVectorEnvManager(env)
    play(manager, 20)
    env.answer['terminated'] = over
    assert manager.step(np.zeros(2, np.int64), manager.ready).done.tolist() == [False, True]
    manager.reset(np.array([1]))
    env.answer |= {'obs': spoiled, 'terminated': ~over & over}
    with raises(NonFiniteError):
        manager.step(np.zeros(1, np.int64), manager.ready)
