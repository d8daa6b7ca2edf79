"""Action masks are moved into the observation, wherever an env gives them, and one that allows nothing is an error."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from fakes import manager_of
from games import TurnGame
from gymnasium import spaces
from quick_workers import forked_workers, quick_workers  # noqa: F401
from space_envs import STEPS, SpaceEnv
from zoo import Toy

from rlframe.data.observation import any_action, has_mask
from rlframe.envs.action_mask import with_mask
from rlframe.envs.agents import Agents
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.player_env import TurnEnv
from rlframe.errors import ActionMaskError, EnvContractError, EnvContractWarning, IncompatibleError
from rlframe.policy.parts.random_policy import random_opponent
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.worker.collector.rollout import Rollout

BASE, SUBPROCESS = ('base', {}), ('subprocess', {'worker_num': 1})
NEXT_STEP, SAME_STEP, DISABLED = (
    ('gym_vector', {'autoreset': mode}) for mode in ('NEXT_STEP', 'SAME_STEP', 'DISABLED')
)


@pytest.fixture
def make(opened: Any) -> Any:
    """Makes a manager of three envs."""

    def build(manager: tuple[str, Any], env_id: Any = SpaceEnv, **env: Any) -> Any:
        factory = GymEnvFactory({'env_id': env_id, **env})
        made = opened(manager_of(manager, factory, 3))
        assert made.spec.observation_space == factory.spec.observation_space
        return made

    return build


class Uneven(SpaceEnv):
    """Its episodes differ in length, so that some envs end one while others begin one."""

    def reset(self, **kwargs: Any) -> Any:
        answer = super().reset(**kwargs)
        self._left = int(self.np_random.integers(1, 5))
        return answer


INFO, PARTS = {'mask': 'info'}, {'mask': 'obs', 'action': 'MultiDiscrete'}


@pytest.mark.parametrize(
    ('manager', 'kwargs'),
    [
        *((manager, INFO) for manager in (BASE, NEXT_STEP, SAME_STEP)),
        *((manager, PARTS) for manager in (BASE, SUBPROCESS, DISABLED)),
    ],
    ids=str,
)
def test_masks_reach_whoever_acts_and_are_those_of_the_env(
    manager: Any, kwargs: dict[str, Any], make: Any
) -> None:
    envs = make(manager, Uneven, kwargs=kwargs)
    space = envs.spec.observation_space
    assert has_mask(space) and space['action_mask'].shape == (4,)
    envs.reset(seed=[1, 2, 3])
    rollout = Rollout(envs, random_opponent(envs.spec, 0))
    seen, ends, apart = set(), 0, 0
    for _ in range(40):
        step = rollout.step()  # SpaceEnv refuses what its mask forbids
        mask = step.obs['action_mask']
        assert (mask.max(1) == 1).all()
        seen |= {tuple(row) for row in mask.tolist()}
        final = step.timestep.obs['action_mask'][step.timestep.terminated]
        assert (final == 0).all(), 'of a finished episode it is the true last one'
        ends += len(final)
        apart += 0 < len(step.finished) < len(step.done)
        assert not any('action_mask' in info for info in step.timestep.info)
        assert kwargs is PARTS or all(info['other'] == 1 for info in step.timestep.info)
    assert ends >= 6 and len(seen) >= 3 and apart >= 5


def test_masks_can_be_ignored(make: Any) -> None:
    envs = make(BASE, kwargs={'mask': 'info'}, action_mask=False)
    assert not has_mask(envs.spec.observation_space)
    envs.reset(seed=[1, 2, 3])
    assert envs.obs.shape == (3, 4)


def test_taxi_gives_its_mask_without_being_asked(make: Any) -> None:
    envs = make(('base', {}), 'Taxi-v4')
    assert envs.spec.observation_space['action_mask'].shape == (6,)
    envs.reset(seed=[1, 2, 3])
    raw = gymnasium.make('Taxi-v4')
    np.testing.assert_array_equal(envs.obs[1]['action_mask'], raw.reset(seed=2)[1]['action_mask'])


class NoneAllowed(SpaceEnv):
    """Allows none of the first two actions, or nothing, at one step of the second episode, 0 is its reset.

    Args:
        at: The step.
        action: Kind of the actions.
        late: Whether it no longer tells then.
    """

    def __init__(self, at: int, action: str = 'Discrete', late: bool = False) -> None:
        super().__init__('Box', action, 'info')
        self._left_out, self._late = STEPS + 1 + at, late

    def _answer(self) -> Any:
        obs, info = super()._answer()
        self._left_out -= 1
        if self._left_out < 0:
            info['action_mask'][: 4 if isinstance(self.action_space, spaces.Discrete) else 2] = 0
            if self._late:
                del info['action_mask']
        return obs, info


def play_on(envs: Any) -> None:
    envs.reset(seed=[1, 2, 3])
    rollout = Rollout(envs, random_opponent(envs.spec, 0))
    for _ in range(40):
        rollout.step()


@pytest.mark.parametrize(
    ('manager', 'at', 'action'),
    [
        (BASE, 0, 'Discrete'),
        (BASE, 3, 'MultiDiscrete'),
        (SUBPROCESS, 3, 'Discrete'),
        (NEXT_STEP, 0, 'Discrete'),
        (SAME_STEP, 3, 'MultiDiscrete'),
        (SAME_STEP, 0, 'Discrete'),
        (DISABLED, 3, 'Discrete'),
    ],
    ids=str,
)
def test_a_mask_that_allows_nothing_names_env_episode_and_step(
    manager: Any, at: int, action: str, make: Any
) -> None:
    envs = make(manager, NoneAllowed, kwargs={'at': at, 'action': action}, action_mask=True)
    with raises(ActionMaskError):
        play_on(envs)


def test_an_env_that_stops_telling_is_refused(make: Any) -> None:
    kwargs = {'at': 3, 'late': True}
    envs = make(('base', {}), NoneAllowed, kwargs=kwargs, action_mask=True)
    with raises(EnvContractError):
        play_on(envs)


def test_masks_of_a_wrong_size_and_for_other_spaces_are_refused(make: Any) -> None:
    class Wide(SpaceEnv):
        def __init__(self) -> None:
            super().__init__(mask='obs')
            self.observation_space['action_mask'] = spaces.MultiBinary(7)

    with raises(IncompatibleError):
        make(('base', {}), Wide)
    with raises(IncompatibleError):
        make(('base', {}), SpaceEnv, kwargs={'action': 'Box'}, action_mask=True)
    with raises(EnvContractError):
        with_mask(0, {'action_mask': np.ones(4)}, spaces.Discrete(3), 'env', 'reset()', False)


def test_frames_are_stacked_and_the_mask_is_not(make: Any) -> None:
    envs = make(('base', {}), SpaceEnv, kwargs={'mask': 'info'}, frame_stack=3)
    envs.reset(seed=[1, 2, 3])
    assert envs.obs['observation'].shape == (3, 3, 4) and envs.obs['action_mask'].shape == (3, 4)
    rollout = Rollout(envs, random_opponent(envs.spec, 0))
    first, second = rollout.step(), rollout.step()
    for step in (first, second):
        before, after = step.obs['observation'], step.timestep.obs['observation']
        np.testing.assert_array_equal(before[:, 1:], after[:, :-1])


def test_a_mask_that_would_be_stacked_with_the_frames_is_refused_with_a_remedy(make: Any) -> None:
    with raises(IncompatibleError):
        make(('base', {}), SpaceEnv, kwargs={'mask': 'obs'}, frame_stack=3)


class Told(Toy):
    """Gives a mask in its infos, of resets or of steps only, and reads none."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    length = None

    def __init__(self, action: Any, late: bool = False) -> None:
        self.action_space, self._late = action, late

    def info(self) -> dict[str, Any]:
        return {} if self._late and self.steps == 0 else {'action_mask': np.ones(3)}


class ToldVector(gymnasium.vector.SyncVectorEnv):
    def __init__(self, num_envs: int, **kwargs: Any) -> None:
        super().__init__([lambda: Told(**kwargs)] * num_envs)


class ToldGame(TurnGame):
    def last(self) -> Any:
        return *super().last()[:4], {'action_mask': np.ones(3)}


PUSH, FLIP, LATE = (
    {'action': spaces.Box(-1, 1, (3,), np.float32)},
    {'action': spaces.MultiBinary(3)},
    {'action': spaces.Discrete(3), 'late': True},
)
VECTOR = 'gym_vector', {}
SAID: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    'Box': (BASE, Told, PUSH, 'no mask fits Box'),
    'MultiBinary': (BASE, Told, FLIP, 'no mask fits MultiBinary'),
    'in a process': (SUBPROCESS, Told, PUSH, 'no mask fits Box'),
    'late': (BASE, Told, LATE, 'the first reset.. gave none'),
    'vector': (VECTOR, ToldVector, PUSH, 'no mask fits Box'),
    'late in a vector': (VECTOR, ToldVector, LATE, 'a vector env gives it as a part'),
    'game': (BASE, lambda: TurnEnv(ToldGame(), 'Turns'), {}, 'a player gets it as a part'),
    'agents': (
        VECTOR,
        Agents,
        dict(game='agent_games:crowd', act='box', mask='info'),
        'no mask fits Box',
    ),
}
"""A manager, an env whose masks nothing reads, its options, and the words about it."""


@pytest.mark.parametrize('name', SAID)
def test_a_mask_that_nothing_reads_is_told_of_once(name: str, opened: Any) -> None:
    (manager, cfg), env_id, kwargs, words = SAID[name]
    factory = GymEnvFactory({'env_id': env_id, 'kwargs': kwargs})
    kind = ENV_MANAGER_REGISTRY.get_cls({'type': manager})
    with pytest.warns(EnvContractWarning, match=rf"info\['action_mask'\] is ignored: {words}") as caught:
        envs = opened(kind.from_factory(factory, 3, kind.resolve_config(cfg)))
        envs.reset(seed=[1, 2, 3])
        for _ in range(3):
            envs.step(
                np.broadcast_to(any_action(envs.spec.action_space), (3, *envs.spec.action_space.shape)),
                np.arange(3),
            )
    texts = {str(one.message) for one in caught}
    assert len(texts) == 1 and (len(caught) == 1 or name in ('game', 'agents'))  # each of them says it


@pytest.mark.parametrize('manager', [BASE, SUBPROCESS], ids=str)
def test_a_mask_that_an_option_leaves_out_is_not_told_of(manager: Any, opened: Any) -> None:
    factory = GymEnvFactory({'env_id': Told, 'kwargs': PUSH, 'action_mask': False})
    opened(manager_of(manager, factory, 3)).reset(seed=[1, 2, 3])
