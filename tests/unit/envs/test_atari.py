"""Atari games: their frames are Gymnasium's, a life ends an episode but no game, and nothing is lost on resume."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises

from rlframe import config
from rlframe.envs.atari import AtariFactory
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.errors import CheckpointStateError, ConfigError, EnvError, MissingDependencyError
from rlframe.pipeline import build

pytest.importorskip('ale_py')
pytest.importorskip('cv2')


def make(env_id: str = 'ALE/Pong-v5', training: bool = False, **options: Any) -> Any:
    factory = AtariFactory({'env_id': env_id, **options})
    return (factory.for_training() if training else factory).create()


@pytest.mark.parametrize(('skip', 'stack', 'grayscale'), [(4, 4, True), (3, 2, False)])
@pytest.mark.slow
def test_frames_and_rewards_are_those_of_gymnasium_s_wrappers(skip: int, stack: int, grayscale: bool) -> None:
    import ale_py

    gymnasium.register_envs(ale_py)
    theirs: Any = gymnasium.make('ALE/Pong-v5', frameskip=1, repeat_action_probability=0.0)
    theirs = gymnasium.wrappers.AtariPreprocessing(theirs, frame_skip=skip, grayscale_obs=grayscale)
    theirs = gymnasium.wrappers.FrameStackObservation(theirs, stack)
    ours = make(frame_skip=skip, frame_stack=stack, grayscale=grayscale)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    rng, rewards, before = np.random.default_rng(0), 0.0, []
    for seed in (3, None):
        np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
        for _ in range(110):
            action = int(rng.integers(6))
            own, other = ours.step(action), theirs.step(action)
            np.testing.assert_array_equal(own[0], other[0])
            assert all((stack == copy).all() for stack, copy in before), 'stacks stay as they were'
            before = [*before[-2:], (own[0], own[0].copy())]
            assert own[1:4] == other[1:4]
            rewards += own[1]
    assert rewards < 0


def play(env: Any, steps: int, action: int = 1) -> list[tuple[Any, ...]]:
    """Steps an env with one action, and returns reward, done and info of each step."""
    rows = []
    env.reset(seed=5)
    for _ in range(steps):
        _, reward, terminated, truncated, info = env.step(action)
        rows.append((reward, terminated, truncated, info))
        if terminated or truncated:
            env.reset()
    return rows


@pytest.fixture(scope='module')
def breakout() -> Any:
    """A game in training; loading a ROM takes a tenth of a second."""
    return make('ALE/Breakout-v5', True, protocol='baselines')


def test_a_lost_life_ends_the_episode_in_training_and_no_game(breakout: Any) -> None:
    ends = [info for _, terminated, _, info in play(breakout, 180) if terminated]
    assert ends[:4] == [{'game_goes_on': True}] * 4 and 'eval_episode_return' in ends[4]


@pytest.mark.slow
def test_training_sees_the_sign_of_rewards_and_the_log_their_sum() -> None:
    env, raw = (
        make('ALE/SpaceInvaders-v5', is_training, life_loss=False, max_frames=900) for is_training in (1, 0)
    )
    clipped, whole = play(env, 260), play(raw, 260)
    assert {row[0] for row in clipped} == {0.0, 1.0} and max(row[0] for row in whole) > 1
    np.testing.assert_array_equal([row[0] for row in clipped], np.sign([row[0] for row in whole]))
    end = next(number for number, row in enumerate(clipped) if row[2])
    assert clipped[end][3] == {'eval_episode_return': sum(row[0] for row in whole[: end + 1])}


def test_an_interrupted_game_restarts_and_a_seed_restarts_every_game(breakout: Any) -> None:
    env = breakout
    first = env.reset(seed=1)[0]
    while not env.step(1)[2]:
        pass
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)
    while not env.step(1)[2]:
        pass
    assert env._ale.lives() == 4
    env.reset()
    assert env._ale.lives() == 4, 'a life was lost, and the game goes on'
    env.reset()
    assert env._ale.lives() == 5, 'no life was lost since'


@pytest.mark.slow
def test_a_game_that_reaches_its_limit_of_frames_is_truncated() -> None:
    rows = play(make(max_frames=100, noop_max=0), 30)
    ((index, info),) = [(i, row[3]) for i, row in enumerate(rows) if row[2]][:1]
    assert index == 24 and not rows[index][1] and info == {'eval_episode_return': rows[0][0]}


@pytest.mark.slow
def test_sticky_actions_repeat_the_action_of_the_frame_before() -> None:
    env = make(protocol='machado2018', frame_skip=1)
    assert env.action_space.n == 18
    env.reset(seed=0)
    repeated = 0
    for number in range(400):
        env.step(2 + number % 2)
        repeated += env._action_played != env._codes[2 + number % 2]
    assert 60 < repeated < 140


@pytest.mark.slow
def test_a_game_that_ale_does_not_restore_exactly_begins_anew_and_says_so() -> None:
    games = BaseEnvManager.from_factory(AtariFactory({'env_id': 'ALE/Qbert-v5'}).for_training(), 2)
    games.reset(seed=[1, 2])
    games.step(np.zeros(2, np.int64), games.ready)
    assert games.restart_lost().tolist() == [0, 1]
    assert '_ale (ale_py._ale_py.ALEInterface) cannot be saved' in games.unsaved[0]


@pytest.mark.slow
def test_evaluation_plays_whole_games_with_unclipped_rewards() -> None:
    cfg = config.compile_config(
        {'env': {'env_id': 'ALE/Breakout-v5', 'protocol': 'baselines', 'collector_env_num': 1}},
        {'env': {'type': 'atari'}, 'policy': {'type': 'dqn'}},
    )
    factory = build.make_factory(cfg)
    training, evaluation = build.make_env(cfg, factory, 1), build.make_eval_env(cfg, factory, 1)
    assert factory.spec == training.spec == evaluation.spec
    ends = [env.envs[0]._ends_lives for env in (training, evaluation)]
    clips = [env.envs[0]._clips for env in (training, evaluation)]
    assert ends == clips == [True, False]


@pytest.mark.slow
def test_a_restored_game_goes_on_exactly_and_a_damaged_state_is_refused() -> None:
    options = dict(protocol='machado2018', life_loss=True)
    env, other = (make('ALE/Breakout-v5', True, **options) for _ in range(2))
    env.reset(seed=1)
    while not env.step(1)[2]:
        pass
    state = copy.deepcopy(env.get_state())  # a life was lost, and the game goes on
    other.reset(seed=2)
    other.set_state(state)
    plays = []
    for game in (env, other):
        rng, told = np.random.default_rng(0), [game.reset()]
        for _ in range(30):
            told.append(game.step(int(rng.integers(18)))[:4])
            if told[-1][2]:
                told.append(game.reset())
        plays.append([*told, game.reset()])
    for own, restored in zip(*plays, strict=True):
        np.testing.assert_array_equal(own[0], restored[0])
        assert own[1:] == restored[1:]
    for name, value in (('emulator', state['emulator'][:50]), ('held', 99), ('frames', state['frames'][:2])):
        with pytest.raises(CheckpointStateError):
            env.set_state({**state, name: value})
    broken = {**state, 'emulator': np.full_like(state['emulator'], 255)}
    with raises(CheckpointStateError):
        env.set_state(broken)


@pytest.mark.parametrize(
    ('env_id', 'expected'),
    [
        ('PongNoFrameskip-v4', "'ALE/Pong-v5': this id has a frame skip of its own"),
        ('Pong-v5', "'ALE/Pong-v5'"),
        ('CartPole-v1', "the id of a game, such as 'ALE/Pong-v5'"),
    ],
)
def test_an_id_that_names_no_game_is_refused(env_id: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AtariFactory({'env_id': env_id})
    assert caught.value.where == 'env_id' and expected in str(caught.value)


@pytest.mark.slow
def test_unknown_games_flavours_and_missing_roms_are_named(monkeypatch: Any) -> None:
    with raises(EnvError):
        make('ALE/Pongg-v5')
    with raises(EnvError):
        make(mode=77)
    monkeypatch.setenv('ALE_ROMS_DIR', '/nowhere')
    with raises(EnvError):
        make()


@pytest.mark.parametrize('module', ['ale_py', 'cv2'])
def test_a_missing_package_is_named_with_its_extra(module: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__('sys').modules, module, None)
    with raises(MissingDependencyError):
        make()
