"""Action masks are moved into the observation, wherever an env gives them, and one that allows nothing is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from quick_workers import forked_workers, quick_workers  # noqa: F401
from space_envs import SpaceEnv

from rlframe.data.observation import has_mask
from rlframe.envs import IEnvManager
from rlframe.envs.action_mask import MaskedEnv
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ActionMaskError, EnvContractError, IncompatibleError
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.worker.collector.rollout import Rollout

BASE, SUBPROCESS, ASYNC = (
    ('base', {}),
    ('subprocess', {'worker_num': 1}),
    ('async_subprocess', {'worker_num': 1}),
)
NEXT_STEP, SAME_STEP, DISABLED = (
    ('gym_vector', {'autoreset': mode}) for mode in ('next_step', 'same_step', 'disabled')
)


class AnyAllowed:
    """Takes the last allowed action."""

    def __init__(self, action_space: Any) -> None:
        self._space, self.reset = action_space, lambda env_id: None

    def forward(self, obs: Any, env_id: Any) -> Any:
        from rlframe.data import Batch

        mask = obs['action_mask'] != 0
        last = lambda part: part.shape[1] - 1 - part[:, ::-1].argmax(1)  # noqa: E731
        if isinstance(self._space, spaces.Discrete):
            return Batch(action=last(mask) + self._space.start)
        return Batch(action=np.stack([last(mask[:, :2]), last(mask[:, 2:])], 1))


@pytest.fixture
def made() -> Iterator[list[IEnvManager]]:
    managers: list[IEnvManager] = []
    yield managers
    for manager in managers:
        manager.close()


def make(made: list[IEnvManager], manager: tuple[str, Any], env_id: Any = SpaceEnv, **env: Any) -> Any:
    kind = ENV_MANAGER_REGISTRY.get(manager[0])
    factory = GymEnvFactory({'env_id': env_id, **env})
    made.append(kind.from_factory(factory, 3, kind.resolve_config(manager[1])))
    assert made[-1].spec.observation_space == factory.spec.observation_space
    return made[-1]


class Uneven(SpaceEnv):
    """Its episodes differ in length, so that some envs end one while others begin one."""

    def reset(self, **kwargs: Any) -> Any:
        answer = super().reset(**kwargs)
        self._left = int(self.np_random.integers(1, 5))
        return answer


@pytest.mark.parametrize(
    ('manager', 'where', 'action'),
    [
        (BASE, 'info', 'Discrete'),
        (BASE, 'obs', 'MultiDiscrete'),
        (SUBPROCESS, 'info', 'MultiDiscrete'),
        (NEXT_STEP, 'info', 'Discrete'),
        (SAME_STEP, 'info', 'Discrete'),
        (DISABLED, 'obs', 'MultiDiscrete'),
        pytest.param(ASYNC, 'info', 'Discrete', marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_masks_reach_whoever_acts_and_are_those_of_the_env(
    manager: Any, where: str, action: str, made: Any
) -> None:
    envs = make(made, manager, Uneven, kwargs={'mask': where, 'action': action})
    space = envs.spec.observation_space
    assert has_mask(space) and space['action_mask'].shape == (4,)
    envs.reset(seed=[1, 2, 3])
    rollout = Rollout(envs, AnyAllowed(envs.spec.action_space))
    seen, ends, apart = set(), 0, 0
    for _ in range(40):
        step = rollout.step()  # SpaceEnv refuses what its mask forbids
        mask = step.obs['action_mask']
        assert (mask.max(1) == 1).all()
        seen |= {tuple(row) for row in mask.tolist()}
        final = step.timestep.obs['action_mask'][step.timestep.terminated]
        assert not final.any(), 'of a finished episode it is the true last one'
        ends += len(final)
        apart += 0 < len(step.finished) < len(step.done)
        assert not any('action_mask' in info for info in step.timestep.info)
        assert where == 'obs' or all(info['other'] == 1 for info in step.timestep.info)
    assert ends >= 6 and len(seen) >= 3 and apart >= 5


class NativeMasks(gymnasium.vector.VectorEnv):
    """Three envs in vector form, each allowing one action only: its number, plus 1 after every step; 4 steps an episode."""

    def __init__(self, num_envs: int, mode: str = 'NEXT_STEP', final: bool = True) -> None:
        self.num_envs, self._mode, self._final = num_envs, gymnasium.vector.AutoresetMode[mode], final
        self.metadata = {'autoreset_mode': self._mode}
        self.single_observation_space = spaces.Box(0, 9, (1,))
        self.single_action_space = spaces.Discrete(5)
        self.observation_space = spaces.Box(0, 9, (num_envs, 1))
        self.action_space = spaces.MultiDiscrete([5] * num_envs)
        self._time, self._over = np.zeros(num_envs, int), np.zeros(num_envs, bool)

    def _allowed(self) -> np.ndarray:
        return (np.arange(self.num_envs) + self._time) % 5

    def _masks(self) -> np.ndarray:
        return np.eye(5, dtype=bool)[self._allowed()] & (self._time < 4)[:, None]

    def _obs(self) -> np.ndarray:
        return self._time[:, None].astype(np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        due = (options or {}).get('reset_mask', np.ones(self.num_envs, bool))
        self._time[due] = 0
        self._over[due] = False
        return self._obs(), {'action_mask': self._masks()}

    def step(self, actions: Any) -> Any:
        begins = self._over if self._mode.name == 'NEXT_STEP' else np.zeros(self.num_envs, bool)
        assert (actions == self._allowed())[~begins].all(), 'an action that is not allowed'
        self._time = np.where(begins, 0, self._time + 1)
        self._over = self._time == 4
        done, info = self._over.copy(), {'action_mask': self._masks()}
        if self._mode.name == 'SAME_STEP' and done.any():
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                final[i] = self._obs()[i]
            info |= {'final_obs': final, '_final_obs': done}
            if self._final:
                info |= {'final_info': info.copy(), '_final_info': done}
            self._time[done] = 0
            info['action_mask'] = self._masks()
        zeros = np.zeros(self.num_envs, bool)
        return self._obs(), np.ones(self.num_envs), done, zeros, info


@pytest.mark.parametrize(
    ('mode', 'final'), [('NEXT_STEP', True), ('SAME_STEP', True), ('SAME_STEP', False), ('DISABLED', True)]
)
def test_masks_of_native_vector_envs(mode: str, final: bool, made: Any) -> None:
    kwargs = {'mode': mode, 'final': final}
    envs = make(made, ('gym_vector', {}), NativeMasks, kwargs=kwargs)
    envs.reset(seed=[0, 1, 2])
    rollout, ends = Rollout(envs, AnyAllowed(spaces.Discrete(5))), 0
    for _ in range(18):
        step = rollout.step()
        assert (step.obs['action_mask'].sum(1) == 1).all()
        last = step.timestep.obs[step.timestep.terminated]
        assert (last['observation'] == 4).all()
        known = mode != 'SAME_STEP' or final
        assert (last['action_mask'] == (0 if known else 1)).all()
        ends += len(last)
    assert ends >= 9


@pytest.mark.parametrize('manager', [BASE, SAME_STEP], ids=str)
def test_masks_can_be_ignored(manager: Any, made: Any) -> None:
    envs = make(made, manager, kwargs={'mask': 'info'}, action_mask=False)
    assert not has_mask(envs.spec.observation_space)
    envs.reset(seed=[1, 2, 3])
    assert envs.obs.shape == (3, 4)


def test_taxi_gives_its_mask_without_being_asked(made: Any) -> None:
    envs = make(made, ('base', {}), 'Taxi-v4')
    assert envs.spec.observation_space['action_mask'].shape == (6,)
    envs.reset(seed=[1, 2, 3])
    raw = gymnasium.make('Taxi-v4')
    np.testing.assert_array_equal(envs.obs[1]['action_mask'], raw.reset(seed=2)[1]['action_mask'])


class NoneAllowed(SpaceEnv):
    """Allows nothing at one step of the second episode, 0 is its reset; with ``late`` it no longer tells."""

    def __init__(self, at: int, mask: str = 'info', action: str = 'Discrete', late: bool = False) -> None:
        super().__init__('Box', action, mask)
        self._at, self._late, self._episode, self._number = at, late, 0, 0

    def _changed(self, obs: Any, info: Any) -> Any:
        if self._episode == 2 and self._number >= self._at:
            mask = obs['action_mask'] if self._where == 'obs' else info['action_mask']
            mask[:2] = 0
            if self._size == 4 and isinstance(self.action_space, spaces.Discrete):
                mask[:] = 0
            if self._late:
                del info['action_mask']
        return obs, info

    def reset(self, **kwargs: Any) -> Any:
        self._episode, self._number = self._episode + 1, 0
        return self._changed(*super().reset(**kwargs))

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self._number += 1
        obs, info = self._changed(obs, info)
        return obs, reward, terminated, truncated, info


def play_on(envs: Any) -> None:
    envs.reset(seed=[1, 2, 3])
    rollout = Rollout(envs, AnyAllowed(envs.spec.action_space))
    for _ in range(40):
        rollout.step()


@pytest.mark.parametrize(
    ('manager', 'at', 'action', 'mask'),
    [
        (BASE, 0, 'Discrete', 'info'),
        (BASE, 3, 'MultiDiscrete', 'obs'),
        (SUBPROCESS, 3, 'Discrete', 'info'),
        (NEXT_STEP, 0, 'Discrete', 'info'),
        (SAME_STEP, 3, 'MultiDiscrete', 'obs'),
        (SAME_STEP, 0, 'Discrete', 'info'),
        (DISABLED, 3, 'Discrete', 'info'),
    ],
    ids=str,
)
def test_a_mask_that_allows_nothing_names_env_episode_and_step(
    manager: Any, at: int, action: str, mask: str, made: Any
) -> None:
    envs = make(
        made,
        manager,
        NoneAllowed,
        kwargs={'at': at, 'action': action, 'mask': mask},
        action_mask=mask == 'info',
    )
    words = rf'env \d, episode 2, step {at}: action_mask is \[0, 0, .*allows no action of .*Discrete'
    with pytest.raises(ActionMaskError, match=words):
        play_on(envs)


def test_an_env_that_stops_telling_is_refused(made: Any) -> None:
    kwargs = {'at': 3, 'late': True}
    envs = make(made, ('base', {}), NoneAllowed, kwargs=kwargs, action_mask=True)
    with pytest.raises(
        EnvContractError, match=r"step\(\) gave no info\['action_mask'\].*env\.action_mask=False"
    ):
        play_on(envs)


def test_masks_of_a_wrong_size_and_for_other_spaces_are_refused(made: Any) -> None:
    class Wide(SpaceEnv):
        def __init__(self) -> None:
            super().__init__(mask='obs')
            self.observation_space['action_mask'] = spaces.MultiBinary(7)

    with pytest.raises(
        IncompatibleError, match=r'MultiBinary\(7\), the action space is Discrete.*shape \[4\]'
    ):
        make(made, ('base', {}), Wide)
    with pytest.raises(
        IncompatibleError, match=r'no action masks for the action space Box.*Supported: Discrete'
    ):
        make(made, ('base', {}), SpaceEnv, kwargs={'action': 'Box'}, action_mask=True)
    env = MaskedEnv(SpaceEnv(mask='info'))
    env._size = (3,)
    with pytest.raises(
        EnvContractError, match=r"info\['action_mask'\] of shape \(4,\), expected shape \(3,\)"
    ):
        env.reset(seed=0)


def test_frames_are_stacked_and_the_mask_is_not(made: Any) -> None:
    envs = make(made, ('base', {}), SpaceEnv, kwargs={'mask': 'info'}, frame_stack=3)
    envs.reset(seed=[1, 2, 3])
    assert envs.obs['observation'].shape == (3, 3, 4) and envs.obs['action_mask'].shape == (3, 4)
    rollout = Rollout(envs, AnyAllowed(envs.spec.action_space))
    first, second = rollout.step(), rollout.step()
    for step in (first, second):
        before, after = step.obs['observation'], step.timestep.obs['observation']
        np.testing.assert_array_equal(before[:, 1:], after[:, :-1])


def test_a_mask_that_would_be_stacked_with_the_frames_is_refused_with_a_remedy(made: Any) -> None:
    with pytest.raises(IncompatibleError, match=r"env\.frame_stack does not stack info\['action_mask'\]"):
        make(made, ('base', {}), SpaceEnv, kwargs={'mask': 'obs'}, frame_stack=3)
