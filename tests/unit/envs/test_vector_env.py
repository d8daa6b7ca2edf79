"""A vector env gives the transitions that its envs give one by one, whatever its way of beginning the next episode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from fakes import CountingEnv, ScriptedPolicy, vector_manager
from fault_envs import Handle
from number_envs import NativeNumbers

from rlframe.envs import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import (
    EnvContractError,
    EnvContractWarning,
    EnvCrashedError,
    EnvError,
    EnvStartError,
)
from rlframe.utils.seed import COLLECT, env_seed
from rlframe.utils.serialize import leaves
from rlframe.worker import SampleSerialCollector
from rlframe.worker.collector.rollout import Rollout

LENGTHS = [[3, 1, 4], [5, 2, 2], [2, 6, 1]]


def counting(number: int) -> CountingEnv:
    return CountingEnv(
        number,
        LENGTHS[number],
        lambda episode: 'truncated' if (number + episode) % 2 else 'terminated',
        lambda n, e, s, done: {'is_success': (n + e) % 2 == 0, 'place': {'step': s}} if done else {},
    )


def transitions(manager: Any, steps: int) -> dict[tuple[int, ...], Any]:
    """Returns every transition of so many steps, by the obs that it begins with."""
    manager.reset(seed=[1, 2, 3])
    rollout, found = Rollout(manager, ScriptedPolicy().collect_mode), {}
    for _ in range(steps):
        step = rollout.step()
        for i, env in enumerate(step.timestep.env_id):
            at = tuple(int(x) for x in step.obs[i])
            assert at[0] == env and at not in found
            told = {k: v for k, v in dict(step.timestep.info[i]).items()}
            found[at] = (
                step.timestep.obs[i].tolist(),
                float(step.timestep.reward[i]),
                bool(step.timestep.terminated[i]),
                bool(step.timestep.truncated[i]),
                (bool(told['is_success']), int(told['place']['step'])) if step.done[i] else None,
            )
    return found


def manager_of(make: Sequence[Any], autoreset: str) -> GymVectorEnvManager:
    """Returns a manager of envs in processes if the mode is ``ASYNC``, and else of envs that begin episodes in this way."""
    if autoreset == 'ASYNC':
        return GymVectorEnvManager(gymnasium.vector.AsyncVectorEnv(make, context='fork'))
    return vector_manager(make, autoreset)


@pytest.mark.parametrize('autoreset', ['NEXT_STEP', 'SAME_STEP', 'DISABLED', 'ASYNC'])
def test_every_autoreset_mode_gives_the_transitions_of_single_envs(autoreset: str) -> None:
    make = [partial(counting, i) for i in range(3)]
    manager = manager_of(make, autoreset)
    try:
        got = transitions(manager, 14)
    finally:
        manager.close()
    single = transitions(BaseEnvManager(make), 14)
    shared = got.keys() & single.keys()
    assert len(shared) >= 24 and all(got[key] == single[key] for key in shared)
    assert got.keys() <= single.keys() if autoreset in ('NEXT_STEP', 'ASYNC') else got.keys() == single.keys()


def test_env_i_is_seeded_once_with_f_of_seed_rank_and_i() -> None:
    manager = vector_manager([partial(counting, i) for i in range(3)], 'DISABLED')
    collector = SampleSerialCollector({}, manager, ScriptedPolicy().collect_mode, seed=11, rank=2)
    collector.collect(40)
    for i, env in enumerate(manager._env.envs):
        seeds = env.unwrapped.seeds
        assert seeds[0] == env_seed(11, 2, i, COLLECT) and set(seeds[1:]) == {None}
    assert len({env_seed(s, r, i) for s in range(3) for r in range(3) for i in range(8)}) == 72


@pytest.mark.parametrize('autoreset', ['SAME_STEP', 'DISABLED', 'ASYNC'])
def test_envs_without_state_begin_the_same_episode_after_a_checkpoint(autoreset: str) -> None:
    manager, other = (manager_of([Handle] * 2, autoreset) for _ in range(2))
    try:
        manager.reset(seed=[1, 2])
        rollouts = [Rollout(each, ScriptedPolicy().collect_mode) for each in (manager, other)]
        for _ in range(8):
            rollouts[0].step()
        lost = manager.state_dict()
        assert manager.restart_lost().tolist() == [0, 1] and manager.restart_lost().tolist() == []
        for state, expected in ((manager.state_dict(), []), (lost, [0, 1])):
            assert other.load_state_dict(state).tolist() == expected
            np.testing.assert_array_equal(manager.obs, other.obs)
            assert manager._episodes.number.tolist() == other._episodes.number.tolist()
        for _ in range(12):
            one, two = (rollout.step().timestep for rollout in rollouts)
            np.testing.assert_array_equal(one.obs, two.obs)
    finally:
        manager.close()
        other.close()


@pytest.mark.parametrize(('name', 'value'), [('frame_stack', 2), ('action_mask', True)])
def test_options_of_single_envs_are_refused_where_there_is_a_vector_form_only(name: str, value: Any) -> None:
    with raises(EnvError) as caught:
        GymVectorEnvManager.from_factory(GymEnvFactory({'env_id': NativeNumbers, name: value}), 2)
    assert caught.value.where == f'env.{name}'


def test_a_constructor_that_raises_is_named_as_by_the_other_managers() -> None:
    def broken(**options: Any) -> Any:
        raise ValueError('no such map')

    with raises(EnvStartError):
        GymVectorEnvManager.from_factory(GymEnvFactory({'env_id': broken}), 2)


@pytest.mark.parametrize('info', [{'x': 0.5}, {'x': [1]}, []])
def test_infos_of_a_native_vector_env_have_a_value_for_each_env(info: Any) -> None:
    env: Any = gymnasium.make_vec('CartPole-v1', 2, 'vector_entry_point')
    manager, step = GymVectorEnvManager(env), env.unwrapped.step
    manager.reset(seed=[1, 2])
    env.step = lambda action: (*step(action)[:4], info)
    with raises(EnvContractError):
        manager.step(np.zeros(2, np.int64), manager.ready)


def test_an_error_of_a_native_vector_env_names_the_running_episodes_and_steps() -> None:
    for count in (2, 9):
        env: Any = gymnasium.make_vec('CartPole-v1', count, 'vector_entry_point')
        manager = GymVectorEnvManager(env)
        manager.reset(seed=[*range(count)])
        manager.step(np.zeros(count, np.int64), manager.ready)
        env.step = lambda action: 1 / 0
        with raises(EnvCrashedError):
            manager.step(np.zeros(count, np.int64), manager.ready)


class Parts(gymnasium.vector.SyncVectorEnv):
    """SAME_STEP envs with observations in the kind of space and the form of ``final_obs`` that are asked for."""

    def __init__(
        self, make: Sequence[Any], form: str, mode: Any = gymnasium.vector.AutoresetMode.SAME_STEP
    ) -> None:
        super().__init__(make, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
        self.metadata, self._form = {**self.metadata, 'autoreset_mode': mode}, form

    def step(self, actions: Any) -> Any:
        obs, *columns, info = super().step(actions)
        mask, final = info.pop('_final_obs', None), info.pop('final_obs', None)
        if mask is None:
            return obs, *columns, info
        form = self._form
        rows = [final[i] if mask[i] else self.single_observation_space.sample() for i in range(self.num_envs)]
        if form == 'objects':
            info |= {'final_obs': final, '_final_obs': mask}
        elif form == 'objects without a mask':
            info['final_obs'] = final
        elif form == 'list':
            info['final_obs'] = rows
        elif form == 'columns':
            whole = gymnasium.vector.utils.create_empty_array(self.single_observation_space, self.num_envs)
            info['final_obs'] = gymnasium.vector.utils.concatenate(self.single_observation_space, rows, whole)
        elif form == 'other name':
            info |= {'final_observation': final, '_final_observation': mask}
        elif form == 'empty mask':
            info |= {'final_obs': final, '_final_obs': np.zeros_like(mask)}
        elif form == 'none':
            info['final_obs'] = np.full(self.num_envs, None, object)
        return obs, *columns, info


class Kinds(gymnasium.ObservationWrapper):
    """Shows the numbers of ``CountingEnv`` in another kind of space."""

    def __init__(self, env: Any, kind: str) -> None:
        super().__init__(env)
        self._kind, box = kind, env.observation_space
        self.observation_space = {
            'box': box,
            'dict': gymnasium.spaces.Dict(a=box, b=gymnasium.spaces.Dict(c=box)),
            'tuple': gymnasium.spaces.Tuple((box, box)),
        }[kind]

    def observation(self, obs: Any) -> Any:
        return {'box': obs, 'dict': {'a': obs, 'b': {'c': -obs}}, 'tuple': (obs, -obs)}[self._kind]


def finals(form: str, kind: str, mode: Any = 'SameStep') -> list[list[list[Any]]]:
    """Returns the observations of the steps in which episodes end."""
    make = [lambda i=i: Kinds(counting(i), kind) for i in range(3)]
    manager = BaseEnvManager(make) if form == 'single' else GymVectorEnvManager(Parts(make, form, mode))
    manager.reset(seed=[1, 2, 3])
    rollout, found = Rollout(manager, ScriptedPolicy().collect_mode), []
    for _ in range(12):
        step = rollout.step().timestep
        found.append([[values.tolist() for _, values in leaves(step.obs)], step.done.tolist()])
    manager.close()
    return found


@pytest.mark.parametrize('kind', ['box', 'dict', 'tuple'])
@pytest.mark.parametrize('form', ['objects', 'objects without a mask', 'list', 'columns'])
def test_last_observations_are_taken_in_each_form_that_vector_envs_give_them(form: str, kind: str) -> None:
    """``columns`` are those of ALE's own vector env."""
    got = finals(form, kind)
    assert got == finals('single', kind) and any(any(done) for _, done in got)


@pytest.mark.parametrize('form', ['missing', 'other name', 'empty mask', 'none'])
def test_a_same_step_env_without_last_observations_is_refused(form: str) -> None:
    with raises(EnvContractError):
        finals(form, 'box')


@pytest.mark.parametrize(
    'mode', ['SameStep', 'SAME_STEP', 'same_step', 'AutoresetMode.SAME_STEP', 'Same', 3, None]
)
def test_a_mode_of_a_vector_env_is_read_as_text_too_or_refused(mode: Any) -> None:
    if mode is None:
        with pytest.warns(EnvContractWarning, match='no metadata.*NEXT_STEP is assumed'):
            finals('columns', 'box', None)
    elif mode in ('Same', 3):
        with raises(EnvContractError):
            finals('columns', 'box', mode)
    else:
        assert finals('columns', 'box', mode) == finals('single', 'box')
