"""What every registered env manager has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_env_manager.py``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fakes import ScriptedPolicy
from fault_envs import Handle
from marks import slow_with
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe.envs import IEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.registry import ENV_MANAGER_REGISTRY, import_modules
from rlframe.worker.collector.rollout import Rollout


def names() -> list[str]:
    """Returns the env managers to check."""
    import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
    return ENV_MANAGER_REGISTRY.names()


Make = Callable[..., IEnvManager]


@pytest.fixture(params=slow_with('async_subprocess', names()))
def make(request: pytest.FixtureRequest) -> Any:
    """Builds the manager under test, of CartPoles where nothing else is asked for."""
    made: list[IEnvManager] = []
    if request.param == 'env_pool':
        pytest.importorskip('envpool')

    def build(
        env_num: int = 3, env_id: Any = 'CartPole-v1', needs_state: bool = False, **options: Any
    ) -> IEnvManager:
        if request.param == 'env_pool' and (needs_state or options or not isinstance(env_id, str)):
            pytest.skip('its envs are its own, and their state cannot be had')
        if request.param == 'torch_vector':
            if options or env_id != 'CartPole-v1':
                pytest.skip('its envs are made of tensors')
            env_id = 'rlframe.envs.tensor:TorchCartPole'
        factory = GymEnvFactory({'env_id': env_id, **options})
        made.append(ENV_MANAGER_REGISTRY.get(request.param).from_factory(factory, env_num))
        return made[-1]

    yield build
    for manager in made:
        manager.close()


class Pushing(ScriptedPolicy):
    """Always pushes to the right, so that CartPole ends soon."""

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Any:
        return super().forward(obs, env_id).replace(action=np.ones(len(env_id), np.int64))


def play(manager: IEnvManager, steps: int) -> list[dict[str, Any]]:
    """Returns the transitions of so many steps, env by env; each env takes as many, whoever is through first, if it can."""
    rollout, rows = Rollout(manager, Pushing().collect_mode), []
    taken = np.zeros(manager.env_num, np.int64)
    rounds = 0
    while taken.min() < steps if manager.can_hold else rounds < steps:
        acting = manager.ready[taken[manager.ready] < steps] if manager.can_hold else None
        step = rollout.step(acting)
        rounds += 1
        taken[step.timestep.env_id] += 1
        for i, env in enumerate(step.timestep.env_id):
            rows.append(
                {
                    'env': int(env),
                    'obs': step.obs[i].copy(),
                    'next_obs': step.timestep.obs[i].copy(),
                    'reward': float(step.timestep.reward[i]),
                    'terminated': bool(step.timestep.terminated[i]),
                    'truncated': bool(step.timestep.truncated[i]),
                }
            )
    return sorted(rows, key=lambda row: row['env'])


def test_facts_are_those_of_the_env_and_closed_ones_are_launched_again(make: Make) -> None:
    manager = make()
    assert manager.env_num == 3 and manager.spec.name == 'CartPole-v1'
    assert manager.spec.observation_space.shape == (4,) and manager.spec.action_space.n == 2
    manager.reset(seed=[1, 2, 3])
    assert manager.obs.shape == (3, 4) and sorted(manager.ready) == [0, 1, 2]
    manager.close()
    manager.close()
    assert manager.closed
    manager.launch()
    manager.reset(seed=[1, 2, 3])
    assert not manager.closed and len(play(manager, 3)) == 9


def test_steps_follow_each_other_and_the_last_obs_is_the_true_one(make: Make) -> None:
    manager = make()
    manager.reset(seed=[1, 2, 3])
    rows = play(manager, 40)
    ends = 0
    for env in range(3):
        own = [row for row in rows if row['env'] == env]
        for row, following in itertools.pairwise(own):
            ended = row['terminated'] or row['truncated']
            ends += ended
            assert row['reward'] == 1.0
            assert np.array_equal(row['next_obs'], following['obs']) != ended
            if ended:
                assert abs(row['next_obs'][2]) > 0.2094 and (np.abs(following['obs']) <= 0.05).all()
    assert ends >= 6


def test_a_time_limit_is_a_truncation(make: Make) -> None:
    wrappers = [dict(type='gymnasium.wrappers:TimeLimit', max_episode_steps=4)]
    manager = make(env_id='Acrobot-v1', wrappers=wrappers)
    manager.reset(seed=[1, 2, 3])
    rows = play(manager, 24)
    own = [row for row in rows if row['env'] == 0]
    assert [row['truncated'] for row in own[:16]] == [False, False, False, True] * 4
    assert not any(row['terminated'] for row in rows)


def test_same_seeds_give_the_same_steps(make: Make) -> None:
    runs = []
    for seeds in ([1, 2, 3], [1, 2, 3], [4, 5, 6]):
        manager = make()
        manager.reset(seed=seeds)
        runs.append(np.concatenate([row['next_obs'] for row in play(manager, 15)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_arrays_of_a_step_outlive_the_next_one(make: Make) -> None:
    manager = make()
    manager.reset(seed=[1, 2, 3])
    rollout, before = Rollout(manager, Pushing().collect_mode), []
    for _ in range(25):
        step = rollout.step()
        for one, other in before:
            np.testing.assert_array_equal(one, other)
        before = [(column, column.copy()) for column in step.timestep[:4]]


def test_state_goes_on_exactly_and_is_a_copy(make: Make) -> None:
    manager, other = make(needs_state=True), make(needs_state=True)
    manager.reset(seed=[1, 2, 3])
    other.reset(seed=[7, 8, 9])
    for taken in (1, 2, 5):
        play(manager, taken)
        state = manager.state_dict()
        assert manager.restart_lost().tolist() == [] and manager.alive.tolist() == [0, 1, 2]
        assert len(other.load_state_dict(state)) == 0
        expected, got = play(manager, 12), play(other, 12)
        assert len(expected) == len(got)
        for one, two in zip(expected, got, strict=True):
            for name, value in one.items():
                np.testing.assert_array_equal(value, two[name])


def test_envs_without_state_begin_the_same_episode_with_and_without_an_interruption(make: Make) -> None:
    runs = []
    for seeds in ([1, 2, 3], [1, 2, 3], [4, 5, 6]):
        manager, other = make(env_id=Handle), make(env_id=Handle)
        manager.reset(seed=seeds)
        play(manager, 7)
        before = manager.obs.copy()
        assert manager.restart_lost().tolist() == [0, 1, 2] and sorted(manager.ready) == [0, 1, 2]
        assert (manager.obs[:, 2] == 0).all() and not np.isin(manager.obs[:, 3], before[:, 3]).any()
        state = manager.state_dict()
        other.reset(seed=[7, 8, 9])
        play(other, 3)
        assert other.load_state_dict(state).tolist() == [], (
            'nothing is lost that was not lost in the other run'
        )
        for _ in range(2):  # the second time, envs resume from what they were in themselves
            runs.append(play(manager, 12))
            for one, two in zip(runs[-1], play(other, 12), strict=True):
                for name, value in one.items():
                    np.testing.assert_array_equal(value, two[name])
            assert manager.restart_lost().tolist() == other.restart_lost().tolist() == [0, 1, 2]
            np.testing.assert_array_equal(manager.obs, other.obs)
    for k in (0, 1):
        np.testing.assert_array_equal(runs[k][0]['obs'], runs[k + 2][0]['obs'])
        assert not np.array_equal(runs[k][0]['obs'], runs[k + 4][0]['obs'])


def test_one_env_is_enough(make: Make) -> None:
    manager = make(1)
    manager.reset(seed=[1])
    assert len(play(manager, 30)) >= 27
