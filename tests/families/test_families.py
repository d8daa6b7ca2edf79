"""Envs of each family that `docs/how_to/find_env.md` names keep the contract, and train by `--env` alone.

They need the packages of ``pip install -e '.[families]'``; `.ci/run` installs them after the other tests.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlframe
from rlframe.app.starting import starting_config
from rlframe.config import compile_config
from rlframe.data.observation import bounds_of, mask_parts, plain_parts
from rlframe.envs.contract import check_spaces
from rlframe.envs.pool_manager import task_ids
from rlframe.envs.worlds import find_world
from rlframe.errors import EnvError, IncompatibleError, MissingDependencyError
from rlframe.pipeline.build import make_env, make_factory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.families,
    pytest.mark.filterwarnings('ignore'),  # those of the packages
]
WEIGHTS = {'wrappers': [{'type': 'rlframe.envs.wrappers:WeightedReward', 'weights': [1.0, 0.5]}]}
FAMILIES: dict[str, list[str]] = {
    'envpool': [
        'envpool:CartPole-v1',
        'envpool:LunarLander-v3',
        'envpool:FrozenLake-v1',
        'envpool:Hopper-v5',
        'envpool:CheetahRun-v1',
        'envpool:MiniGrid-DoorKey-5x5-v0',
        'envpool:BabyAI-GoToObj-v0',
        'envpool:FetchReach-v4',
        'envpool:AdroitHandDoor-v1',
        'envpool:PointMaze_UMaze-v3',
        'envpool:HighwayFast-v0',
        'MetaWorld/Reach-v3',
        'MyoSuite/myoArmReachFixed-v0',
        'Jumanji/Game2048-v1',
        'Jumanji/Minesweeper-v0',
        'Jumanji/MMST-v0',
        'Jumanji/RubiksCube-v0',
        'MuJoCoPlayground/Go1JoystickFlatTerrain-v1',
        'envpool:TicTacToe-v1',
        'envpool:KuhnPoker-v1',
    ],
    'highway_env': ['highway-fast-v0'],
    'gymnasium_robotics': ['FetchReach-v4', 'PointMaze_UMaze-v3'],
    'popgym': ['popgym-RepeatFirstEasy-v0'],
    'mpe2': ['agents:mpe2.simple_spread_v3'],
    'lbforaging': ['Foraging-8x8-2p-1f-v3'],
    'rware': ['team:rware-tiny-2ag-v2'],
    'overcooked': ['overcooked:cramped_room'],
    'mo_gymnasium': ['mo_gymnasium:deep-sea-treasure-v0'],
}
CASES = [
    pytest.param(
        env,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(package) is None, reason=f"needs {package}: pip install -e '.[families]'"
        ),
    )
    for package, envs in FAMILIES.items()
    for env in envs
]


def options_of(env: str) -> dict[str, Any]:
    return dict(WEIGHTS) if env.startswith('mo_gymnasium:') else {}


def steps_of(env: str, seed: int) -> list[Any]:
    """Returns the steps of random actions until an episode has ended, or 300."""
    main_config, create_config = starting_config(env, options=options_of(env))
    cfg = compile_config(main_config, create_config)
    factory = make_factory(cfg)
    manager = make_env(cfg, factory, 6)
    rng = np.random.default_rng(0)
    try:
        manager.reset(seed=[seed + i for i in range(6)])
        return [manager.obs.copy(), *_walk(manager, rng)]
    finally:
        manager.close()


def _walk(manager: Any, rng: np.random.Generator) -> list[Any]:
    spec, steps = manager.spec, []
    for _ in range(300):
        action = np.stack([_drawn(spec, obs, rng) for obs in manager.obs])
        step = manager.step(action, np.arange(6))
        steps.append(step)
        done = step.terminated | step.truncated
        assert not (step.terminated & step.truncated).any() and np.isfinite(step.reward).all()
        if done.any():
            manager.reset(np.flatnonzero(done))
            break
    return steps


def _drawn(spec: Any, obs: Any, rng: np.random.Generator) -> Any:
    """Returns a random action, which a mask of the observation allows."""
    names = obs.dtype.names or ()
    if 'action_mask' in names:
        cuts = np.cumsum(mask_parts(spec.action_space))[:-1]
        allowed = [np.flatnonzero(own) for own in np.split(obs['action_mask'], cuts)]
        return np.reshape([rng.choice(each) for each in allowed], spec.action_space.shape)
    spec.action_space.seed(int(rng.integers(2**31)))
    return spec.action_space.sample()


@pytest.mark.parametrize('env', CASES)
def test_one_seed_gives_one_run_and_another_seed_another_one(env: str) -> None:
    if find_world(env).env == 'pettingzoo':
        pytest.skip('its players move in turn; test_worlds.py plays them')
    one, two = steps_of(env, 3), steps_of(env, 3)
    assert len(one) == len(two) and np.array_equal(one[0], two[0])
    for first, second in zip(one[1:], two[1:], strict=True):
        assert np.array_equal(first.obs, second.obs) and np.array_equal(first.reward, second.reward)
        assert np.array_equal(first.terminated, second.terminated)


@pytest.mark.parametrize('env', CASES)
def test_a_run_by_the_id_alone_trains(env: str, tmp_path: Path) -> None:
    few = {'env.evaluator_env_num': 6, 'env.n_evaluator_episode': 6, 'policy.collect.n_sample': 720}
    overrides = {**few, **{f'env.{name}': value for name, value in options_of(env).items()}}
    run = rlframe.train(
        env=env, overrides=overrides, folder=tmp_path / 'run', max_env_step=720, progress=False
    )
    assert run.finished


def test_goals_of_a_pool_are_judged_by_an_env_without_its_options() -> None:
    gymnasium.register_envs(pytest.importorskip('gymnasium_robotics'))
    pytest.importorskip('envpool')
    held = {'env_id': 'PointMaze_UMaze-v3', 'kwargs': {'frame_skip': 5, 'max_episode_steps': 60}}
    main_config = {'exp_name': 'judged', 'env': held}
    create_config = {'env_manager': {'type': 'env_pool'}, 'policy': {'type': 'sac'}}
    factory = make_factory(compile_config(main_config, create_config))
    assert factory.goals().reward(np.zeros((2, 2)), np.array([[0.0, 0.0], [3.0, 0.0]])).tolist() == [1, 0]


def test_every_task_of_envpool_has_spaces_that_policies_take_or_an_error_with_the_remedy() -> None:
    """No bound is the limit of a float type, and each Box of few integers is made of classes."""
    pytest.importorskip('envpool')
    refused: dict[str, list[str]] = {}
    for task in task_ids():
        try:
            spec = find_world(f'envpool:{task}').factory({}).spec
            check_spaces([], spec)
        except (EnvError, MissingDependencyError, IncompatibleError) as error:
            refused.setdefault(f'{type(error).__name__} {error.remedy[:20]}', []).append(task)
            continue
        for _, part in (*plain_parts(spec.observation_space), ('action', spec.action_space)):
            low, high = (np.asarray(end, np.float64) for end in bounds_of(part))
            largest, tiny = np.finfo(np.float32).max, np.finfo(np.float32).tiny
            assert not (np.isfinite(high) & (high >= largest)).any(), (task, part)
            assert not ((low > 0) & (low <= tiny)).any(), (task, part)
        assert type(spec.action_space).__name__ != 'Box' or spec.action_space.dtype.kind == 'f', task
    few = {name: sorted({task.partition('-')[0] for task in tasks})[:3] for name, tasks in refused.items()}
    assert sum(map(len, refused.values())) < 100, few
    assert not [task for tasks in refused.values() for task in tasks if task.startswith('Jumanji/')], few
