"""Atari games in ALE's threads and in EnvPool give the transitions of games in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_texts import raises

from rlframe.envs.atari import AtariFactory
from rlframe.envs.base_env import PoolTask
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.pool_manager import EnvPoolManager
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import EnvError
from rlframe.worker.collector.rollout import Rollout

pytestmark = pytest.mark.slow

pytest.importorskip('ale_py')
pytest.importorskip('cv2')

GAMES: dict[str, Any] = dict(protocol='baselines', noop_max=0)
Stream = list[tuple[Any, ...]]


class ByTurns:
    """A policy whose action is a function of the steps that an env has taken."""

    def __init__(self) -> None:
        self.steps = np.zeros(2, np.int64)
        self.reset = lambda env_id: None

    def forward(self, obs: Any, env_id: Any) -> Any:
        action = (self.steps[env_id] // 3) % 4
        self.steps[env_id] += 1
        return {'action': action}


def play(kind: Any, options: dict[str, Any], steps: int, cfg: Any = None) -> list[Stream]:
    """Returns the steps of each of two games: obs, reward, terminated, truncated, next obs and info."""
    factory = AtariFactory({'env_id': 'ALE/Breakout-v5', **GAMES, **options}).for_training()
    manager = kind.from_factory(factory, 2, cfg)
    manager.reset(seed=[1, 2])
    rollout, streams = Rollout(manager, ByTurns()), ([], [])
    while min(map(len, streams)) < steps:
        step = rollout.step()
        rows = step.timestep
        for row, env in enumerate(rows.env_id.tolist()):
            info = {name: value for name, value in rows.info[row].items() if not name.startswith('_')}
            told = (rows.reward[row], rows.terminated[row], rows.truncated[row], rows.obs[row].copy(), info)
            streams[env].append((step.obs[row].copy(), *told))
    manager.close()
    return [stream[:steps] for stream in streams]


def assert_same(one: list[Stream], other: list[Stream]) -> None:
    """Fails unless two managers gave the same steps up to the end of the first game."""
    for own, theirs in zip(one, other, strict=True):
        lost = 0
        for ours, expected in zip(own, theirs, strict=True):
            assert ours[1:4] == expected[1:4] and ours[5] == expected[5]
            if ours[2] and not ours[5].get('game_goes_on'):
                break
            np.testing.assert_array_equal(ours[0], expected[0])
            np.testing.assert_array_equal(ours[4], expected[4])
            lost += bool(ours[5])
        assert lost >= 2


@pytest.fixture(scope='module')
def expected() -> list[Stream]:
    return play(BaseEnvManager, {}, 60)


def test_games_in_ale_s_threads_are_those_of_this_process(expected: list[Stream]) -> None:
    assert_same(play(GymVectorEnvManager, {}, 60), expected)


@pytest.mark.parametrize('batch_size', [None, 1])
def test_games_in_envpool_are_those_of_this_process(expected: list[Stream], batch_size: int | None) -> None:
    pytest.importorskip('envpool')
    options = {'noop_max': 1}  # of EnvPool's no-ops, FIRE is the last
    assert_same(play(EnvPoolManager, options, 60, {'batch_size': batch_size}), expected)


@pytest.mark.slow
@pytest.mark.parametrize('kind', [GymVectorEnvManager, EnvPoolManager])
def test_colours_and_frame_skips_are_the_same_in_all_managers(kind: Any) -> None:
    if kind is EnvPoolManager:
        pytest.importorskip('envpool')
    options = dict(grayscale=False, frame_skip=3, frame_stack=2)
    own = {'noop_max': int(kind is EnvPoolManager)}
    assert_same(play(kind, options | own, 80), play(BaseEnvManager, options, 80))


@pytest.mark.slow
def test_a_whole_game_in_threads_is_counted_unclipped() -> None:
    (stream, _) = play(GymVectorEnvManager, {}, 130)
    ends = [row[5] for row in stream if row[2] or row[3]]
    over = next(number for number, info in enumerate(ends) if 'eval_episode_return' in info)
    assert over == 4 and all(info == {'game_goes_on': True} for info in ends[:over])
    assert {row[1] for row in stream} <= {0.0, 1.0}


def test_options_reach_envpool_under_its_names() -> None:
    options = dict(env_id='ALE/Pong-v5', protocol='machado2018', mode=1, screen_size=42)
    task = AtariFactory(options).pool_task()
    assert isinstance(task, PoolTask) and task.task_id == 'Pong-v5'
    wanted = dict(repeat_action_probability=0.25, noop_max=0, full_action_space=True, mode=1, img_width=42)
    assert wanted.items() <= task.kwargs.items() and 'difficulty' not in task.kwargs


def test_stacks_of_other_envs_are_left_to_envpool() -> None:
    with raises(EnvError) as caught:
        GymEnvFactory({'env_id': 'Pong-v5', 'frame_stack': 4}).pool_task()
    assert caught.value.where == 'env.frame_stack'


def test_a_mode_that_envpool_does_not_have_is_refused() -> None:
    pytest.importorskip('envpool')
    factory = AtariFactory({'env_id': 'ALE/Pong-v5', 'mode': 99})
    with pytest.raises(EnvError, match='Invalid game mode'):
        EnvPoolManager.from_factory(factory, 1)
