"""An id alone, or with the name of its world, leads to the package that has the env; ``list env`` shows what is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from zoo import Toy

import rlframe
from rlframe.app.list_envs import envs_text
from rlframe.app.starting import starting_config
from rlframe.config import compile_config
from rlframe.data.players import PlayerLayout
from rlframe.entry.__main__ import main
from rlframe.envs.pettingzoo_env import PettingZooEnvFactory
from rlframe.envs.pool_game import PoolGame
from rlframe.envs.worlds import TEAM_ENV, World, find_world, installed
from rlframe.envs.wrappers import AttributeInfo, WeightedReward
from rlframe.errors import ConfigError, EnvContractError, EnvError, IncompatibleError, MissingDependencyError
from rlframe.pipeline.build import make_factory

pytestmark = pytest.mark.usefixtures('cwd')

TURNS = ('info:current_player', 'info:legal_action_mask', 'info:players.id')
SPECS: dict[str, Any] = {
    'OnlyHere-v1': ('envpool.mujoco.gym', {}),
    'CartPole-v1': ('envpool.classic_control', {}),
    'Turns-v1': ('envpool.pgx', {'max_num_players': 2, 'tells': TURNS}),
    'AtOnce-v1': ('envpool.highway', {'max_num_players': 2, 'tells': TURNS[2:]}),
}


class TurnsPool:
    """Two players write in turn to two free cells; who writes the last one wins. The seed decides who begins."""

    def __init__(self, task_id: str, env_type: str, num_envs: int, num_threads: int, seed: int) -> None:
        self.observation_space = None
        self.cells, self.mover = np.zeros(2, np.float64), seed % 2

    def told(self) -> tuple[Any, Any]:
        """Returns the rows of the players, the second one first, and the info."""
        rows = np.array([[*self.cells, player] for player in (1, 0)])
        players = {'id': np.array([1, 0]), 'env_id': np.zeros(2)}
        return rows, {
            'players': players,
            'current_player': np.array([self.mover]),
            'legal_action_mask': self.cells[None] == 0,
        }

    def reset(self) -> Any:
        return self.told()

    def step(self, action: Any) -> Any:
        assert self.cells[action[0]] == 0
        self.cells[action[0]] = 1
        is_over, winner = bool(self.cells.all()), self.mover
        self.mover = 1 - self.mover
        obs, info = self.told()
        reward = np.array([1.0, -1.0] if winner == 1 else [-1.0, 1.0]) * is_over
        return obs, reward, np.array([is_over]), np.array([False]), info

    def close(self) -> None: ...


@pytest.fixture
def envpool(monkeypatch: pytest.MonkeyPatch) -> None:
    """An EnvPool of four tasks, of which one can be stepped."""

    def make_spec(task_id: str, **kwargs: Any) -> Any:
        if kwargs.get('library'):
            raise ImportError('no libQt5Core.so.5')
        facts = SPECS[task_id][1]
        config = SimpleNamespace(max_episode_steps=500, max_num_players=facts.get('max_num_players', 1))
        box = gymnasium.spaces.Box(-1, 1, (3,), np.float64)
        return SimpleNamespace(
            config=config,
            gymnasium_observation_space=box,
            gymnasium_action_space=gymnasium.spaces.Discrete(2),
            state_array_spec=dict.fromkeys(facts.get('tells', ())),
        )

    pool, registration = ModuleType('envpool'), ModuleType('envpool.registration')
    pool.__spec__ = SimpleNamespace(name='envpool', origin='envpool')  # type: ignore[assignment]
    vars(pool).update(list_all_envs=lambda: list(SPECS), make_spec=make_spec, make=TurnsPool)
    registration.registry = SimpleNamespace(specs=SPECS)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'envpool', pool)
    monkeypatch.setitem(sys.modules, 'envpool.registration', registration)


@pytest.mark.parametrize(
    ('env', 'manager', 'world'),
    [
        ('CartPole-v1', None, World('CartPole-v1')),
        ('CartPole-v1', 'env_pool', World('CartPole-v1', manager='env_pool')),
        ('envpool:CartPole-v1', None, World('CartPole-v1', manager='env_pool')),
        ('OnlyHere-v1', None, World('OnlyHere-v1', manager='env_pool')),
        ('OnlyHere-v1', 'base', World('OnlyHere-v1', manager='base')),
        ('Turns-v1', None, World('envpool:Turns-v1', 'pettingzoo')),
        ('envpool:Turns-v1', None, World('envpool:Turns-v1', 'pettingzoo')),
        ('pettingzoo:classic.tictactoe_v3', None, World('classic.tictactoe_v3', 'pettingzoo')),
        ('classic.tictactoe_v3', 'subprocess', World('classic.tictactoe_v3', 'pettingzoo', 'subprocess')),
        ('MiniGrid-Empty-5x5-v0', None, World('MiniGrid-Empty-5x5-v0')),
        ('my.module:Own-v0', None, World('my.module:Own-v0')),
        ('Nowhere-v1', None, World('Nowhere-v1')),
        ('highway-fast-v0', 'subprocess', World('highway_env:highway-fast-v0', manager='subprocess')),
        ('Panda-v3', None, World('Panda-v3')),
    ],
)
@pytest.mark.usefixtures('envpool')
def test_an_id_leads_to_its_world(
    monkeypatch: pytest.MonkeyPatch, env: str, manager: str | None, world: World
) -> None:
    package = ModuleType('highway_env')
    package.__spec__ = SimpleNamespace(name='highway_env')  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, 'highway_env', package)
    monkeypatch.setitem(sys.modules, 'panda_gym', None)  # not installed
    assert find_world(env, manager) == world


@pytest.mark.usefixtures('envpool')
def test_an_env_of_envpool_gets_a_config_by_its_spaces() -> None:
    main_config, create_config = starting_config('OnlyHere-v1')
    assert (main_config.env.env_id, create_config.env.type) == ('OnlyHere-v1', 'gym')
    assert (create_config.env_manager.type, create_config.policy.type) == ('env_pool', 'ppo')
    assert 'stop_value' not in main_config.env  # EnvPool's own threshold may be that of the family
    with raises(EnvError):
        starting_config('envpool:AtOnce-v1')
    with raises(EnvError):
        starting_config('Turns-v1', manager='env_pool')
    with raises(EnvError):
        PoolGame('Turns-v1', max_episode_steps=3)
    with raises(IncompatibleError):
        PoolGame('OnlyHere-v1')
    with raises(EnvError):
        starting_config('envpool:OnlyHer-v1')
    with raises(MissingDependencyError):
        starting_config('envpool:OnlyHere-v1', options={'kwargs': {'library': True}})


@pytest.mark.parametrize(('policy', 'collector'), [(None, 'sample_1v1'), ('ppo', 'episode_1v1')])
def test_a_game_begins_as_self_play_against_random_moves(policy: str | None, collector: str) -> None:
    main_config, create_config = starting_config('pettingzoo:classic.tictactoe_v3', policy)
    assert (create_config.env.type, create_config.collector.type) == ('pettingzoo', collector)
    assert (create_config.policy.type, create_config.evaluator.type) == (
        policy or 'dqn',
        'battle_interaction',
    )
    assert main_config.policy.eval.evaluator.opponent == 'random'
    small, _ = starting_config('pettingzoo:classic.tictactoe_v3', policy, max_env_step=2000)
    if policy is not None:  # its rounds are whole games, of which a small budget has few
        assert small.policy.collect.n_episode == 8 < main_config.policy.collect.n_episode == 64


@pytest.mark.usefixtures('envpool')
def test_a_game_of_envpool_is_one_of_players_who_move_in_turn(tmp_path: Path) -> None:
    game = PettingZooEnvFactory({'env_id': 'envpool:Turns-v1'}).make()
    assert isinstance(game, PoolGame) and game.player.player_num == 2
    layout = PlayerLayout(game.player, 2)
    first = layout.view(game.reset(seed=1)[0][None])
    assert first.active.tolist() == [[False, True]] and first.obs['observation'][0, 1].tolist() == [0, 0, 1]
    obs, _, terminated, _, _ = game.step(np.array([0, 0]))
    second = layout.view(obs[None])
    assert second.active.tolist() == [[True, False]] and second.obs['action_mask'][0, 0].tolist() == [0, 1]
    state = game.get_state()
    for player in (game, PettingZooEnvFactory({'env_id': 'envpool:Turns-v1'}).make()):
        player.reset(seed=0)
        player.set_state(state)
        obs, reward, terminated, truncated, _ = player.step(np.array([1, 0]))
        last = layout.view(obs[None])
        assert (reward, terminated, truncated) == (1.0, True, False) and last.reward.tolist() == [[1, -1]]
        assert not last.active.any() and last.obs['observation'][0].tolist() == [[1, 1, 0], [1, 1, 1]]
        player.close()
    main_config, create_config = starting_config('Turns-v1', max_env_step=200)
    assert main_config.env.env_id == 'envpool:Turns-v1' and create_config.env.type == 'pettingzoo'
    result = rlframe.train(env='Turns-v1', folder=tmp_path / 'run', max_env_step=200, progress=False)
    assert result.finished and result.best is not None


@pytest.mark.parametrize(
    ('env', 'near'),
    [
        ('CartPole-v7', 'CartPole-v1'),
        ('MinAtar/Breakout-v9', 'MinAtar/Breakout-v1'),
        ('envpool:OnlyHere-v9', 'OnlyHere-v1'),
        ('OnlyHere-v9', 'OnlyHere-v1'),
        ('Turns-v9', 'Turns-v1'),
        ('pettingzoo:classic.tictactoe_v9', 'tictactoe_v3'),
        ('classic.tictactoe_v9', 'tictactoe_v3'),
        ('agents:pettingzoo.sisl.pursuit_v9', 'pursuit_v'),
    ],
)
@pytest.mark.usefixtures('envpool')
def test_another_version_of_an_env_of_any_world_names_the_right_one(
    capsys: pytest.CaptureFixture[str], env: str, near: str
) -> None:
    assert main(['train', '--env', env]) == 2
    error = capsys.readouterr().err
    assert f"Did you mean '{near}" in error and 'MissingDependency' not in error


@pytest.mark.usefixtures('envpool')
def test_each_listed_id_is_found_by_a_process_that_has_not_listed_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = gymnasium.registry
    before, package = dict(registry), ModuleType('highway_env')

    def register() -> ModuleType:
        for name in ('highway-own-v0', 'stray-v0'):
            registry[name] = gymnasium.envs.registration.EnvSpec(name, entry_point='highway_env.envs:Env')
        return package

    imported = importlib.import_module
    monkeypatch.setattr(
        importlib,
        'import_module',
        lambda name, *a: register() if name == 'highway_env' else imported(name, *a),
    )
    package.__spec__ = SimpleNamespace(name='highway_env')  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, 'highway_env', package)
    listed = {family.prefix + name for family in installed() for name in family.ids}
    assert {'highway-own-v0', 'highway_env:stray-v0', 'envpool:OnlyHere-v1'} <= listed
    assert not listed & {'stray-v0', 'highway_env:highway-own-v0'}
    try:
        del registry['highway-own-v0'], registry['stray-v0']
        for env in sorted(listed):
            world = find_world(env)
            module, _, name = str(world.env_id).rpartition(':')
            if world.env == 'gym' and world.manager is None and str(world.env_id) != TEAM_ENV:  # a kitchen
                importlib.import_module(module or 'gymnasium')
                assert name in registry, env
    finally:
        registry.clear()
        registry.update(before)


@pytest.mark.parametrize('env', ['MetaWorld/Reach-v3', 'CoinrunEasy-v0', 'CheetahRun-v1'])
def test_an_id_that_only_envpool_has_names_it(env: str, capsys: pytest.CaptureFixture[str]) -> None:
    if find_world(env).manager is not None:
        pytest.skip('EnvPool is installed')
    assert main(['train', '--env', env]) == 2
    assert f'rlframe[envpool]", and name it envpool:{env}' in capsys.readouterr().err


@pytest.mark.usefixtures('envpool')
def test_installed_envs_are_listed_by_family_and_with_their_spaces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(['list', 'env']) == 0
    text = capsys.readouterr().out
    for line in (
        'Gymnasium classic_control',
        'EnvPool mujoco.gym',
        'such as envpool:OnlyHere-v1',
        'pettingzoo:',
    ):
        assert line in text
    assert main(['list', 'env', 'cartpole']) == 0
    text = ' '.join(capsys.readouterr().out.split())
    assert 'acts by Discrete(2); at most 500 env steps an episode; solved at 475' in text
    assert 'envpool:CartPole-v1' in text
    assert 'CartPole-v0' not in text  # CartPole-v1 replaces it
    assert '2 players' in envs_text('envpool:turns', 80) and 'has 2 players' in envs_text(
        'envpool:atonce', 80
    )
    assert main(['list', 'env', 'CartPoel']) == 2
    assert 'Did you mean' in capsys.readouterr().err
    assert main(['list', 'env', 'gym']) == 0  # a component, as before
    assert 'env.env_id' in capsys.readouterr().out


@pytest.mark.usefixtures('envpool')
def test_a_config_takes_the_spaces_of_envpool_from_it_alone() -> None:
    cfg = compile_config(*starting_config('envpool:OnlyHere-v1'))
    assert make_factory(cfg).spec.name == 'OnlyHere-v1'  # of which Gymnasium knows nothing


@pytest.mark.parametrize(
    ('env', 'package', 'wanted'),
    [
        ('Panda-v3', 'panda_gym', 'panda_gym'),
        ('dm_control/walker-walk-v0', 'shimmy', 'rlframe[dm-control]'),
        ('mo-hopper-v5', 'mo_gymnasium', 'rlframe[mo-gymnasium]'),
    ],
)
def test_an_id_of_a_package_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], env: str, package: str, wanted: str
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == package else find_spec(name)
    )
    assert main(['train', '--env', env]) == 2
    assert f'pip install "{wanted}"' in capsys.readouterr().err


def test_a_misspelt_id_of_a_package_that_is_installed_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = ModuleType('highway_env')
    package.__spec__ = SimpleNamespace(name='highway_env')  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, 'highway_env', package)
    known = gymnasium.envs.registration.EnvSpec('highway-known-v0', entry_point=TwoRewards)
    monkeypatch.setitem(gymnasium.registry, known.id, known)
    assert main(['train', '--env', 'highway-knwn-v0']) == 2
    assert "Did you mean 'highway-known-v0'" in capsys.readouterr().err


class TwoRewards(Toy):
    """Gives the rewards 1 and 10."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    reward_space = gymnasium.spaces.Box(0, 10, (2,), np.float32)
    length = None

    def act(self, action: Any) -> Any:
        return np.array([1, 10], np.float32)


def test_a_vector_of_rewards_is_weighted_or_says_how(tmp_path: Path) -> None:
    env = WeightedReward(TwoRewards(), [0.5, 0.25])
    _, reward, _, _, info = env.step(0)
    assert reward == 3.0
    assert info['vector_reward'].tolist() == [1, 10]
    with raises(ConfigError):
        WeightedReward(TwoRewards(), [1.0])
    with raises(EnvContractError):
        rlframe.train(env=TwoRewards, policy='ppo', folder=tmp_path / 'run', progress=False)


def test_infos_tell_numbers_that_an_env_keeps() -> None:
    class Walker(Toy):
        at = (0, 0)

        def act(self, action: Any) -> Any:
            self.at = (self.at[0] + 1, 7)
            return 1.0

    env = AttributeInfo(Walker(), 'at')
    assert env.reset()[1]['at'].tolist() == [0, 0]
    assert env.step(0)[-1]['at'].tolist() == [1, 7]
    with raises(ConfigError):
        AttributeInfo(Walker(), 'place')
