"""Games of several players behind Gymnasium's interface: what players see, checkpoints, worker processes, bad input."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from games import CountingPlayers, Nim, TurnGame
from gymnasium import spaces

from rlframe.data.players import PlayerLayout
from rlframe.envs import BaseEnvManager
from rlframe.envs.pettingzoo_env import PettingZooEnvFactory
from rlframe.envs.player_env import PlayerEnv, player_env
from rlframe.errors import (
    ConfigError,
    EnvContractError,
    EnvError,
    IncompatibleError,
    MissingDependencyError,
    NonFiniteError,
)


def view_of(manager: Any, obs: Any = None) -> Any:
    spec = manager.spec
    return PlayerLayout(spec.player, spec.player_num).view(manager.obs if obs is None else obs)


def test_spec_is_that_of_one_player_and_the_manager_s_that_of_all() -> None:
    factory = PettingZooEnvFactory({'env_id': partial(TurnGame, players=3)})
    assert factory.spec.player_num == 3 and factory.spec.player is None
    assert (
        factory.spec.observation_space == TurnGame().observation_space('')
        and factory.spec.action_space.n == 3
    )
    manager = BaseEnvManager.from_factory(factory, 2)
    assert manager.spec.player == factory.spec and manager.spec.player_num == 3
    assert manager.spec.action_space == spaces.MultiDiscrete([3, 3, 3])


def test_one_player_at_a_time_is_active_and_paid_when_it_is_his_turn() -> None:
    env = player_env(Nim(5), 'Nim')
    layout = PlayerLayout(env.player, 2)
    obs, _ = env.reset(seed=0)
    seen = layout.view(obs[None])
    assert seen.active.tolist() == [[True, False]] and seen.obs[0, 0].argmax() == 5
    obs, reward, terminated, truncated, _ = env.step(np.array([2, 0]))
    seen = layout.view(obs[None])
    assert seen.active.tolist() == [[False, True]] and seen.obs[0, 1].argmax() == 2
    assert (reward, terminated, truncated) == (0.0, False, False) and not seen.over.any()
    obs, reward, terminated, truncated, _ = env.step(np.array([0, 1]))
    seen = layout.view(obs[None])
    assert seen.reward.tolist() == [[-1.0, 1.0]] and (reward, terminated, truncated) == (-1.0, True, False)
    assert seen.terminated.all() and not seen.truncated.any() and not seen.active.any()
    assert seen.obs[0].argmax(1).tolist() == [0, 0]


def test_a_game_that_is_not_decided_by_its_seed_cannot_go_on() -> None:
    class Forgetful(Nim):
        games = 0

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            super().reset(seed)
            Forgetful.games += 1
            self.left -= Forgetful.games % 2

    env = player_env(Forgetful(), 'Forgetful')
    env.reset(seed=0)
    with raises(EnvContractError):
        env.set_state(env.get_state())


def test_players_of_different_spaces_are_refused() -> None:
    class Unequal(Nim):
        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(3 if agent == 'first' else 4)

    with raises(IncompatibleError):
        player_env(Unequal(), 'Unequal')
    with raises(IncompatibleError):
        PettingZooEnvFactory({'env_id': 'builtins:dict'}).make()


@pytest.mark.parametrize(
    ('obs', 'error'),
    [
        (np.zeros(5), EnvContractError),
        (np.array(['a'] * 11), EnvContractError),
        (np.full(11, np.nan), NonFiniteError),
    ],
)
def test_observations_are_checked(obs: Any, error: type[Exception]) -> None:
    game = Nim(10)
    game.last = lambda: (obs, 0, False, False, {})  # type: ignore[method-assign]
    env = player_env(game, 'Nim')
    with raises(error):
        env.reset(seed=0)


def test_rewards_are_checked_and_missing_parts_are_named() -> None:
    env = CountingPlayers(0, reward=lambda *place: float('inf'))
    env.reset(seed=0)
    with raises(NonFiniteError):
        env.step(np.zeros(2, int))
    game = TurnGame(masked=True)
    game.last = lambda: ({'observation': np.zeros(4)}, 0, False, False, {})  # type: ignore[method-assign]
    with raises(EnvContractError):
        player_env(game, 'Masked').reset(seed=0)


def test_continuous_actions_and_nested_observations_pass_unchanged() -> None:
    class Walk:
        metadata: dict[str, Any] = {}
        possible_agents = ['a', 'b']

        def observation_space(self, agent: str) -> Any:
            box = spaces.Box(-9, 9, (2,), np.float32)
            return spaces.Tuple((spaces.Discrete(5), spaces.Dict(at=box, far=spaces.MultiBinary(3))))

        def action_space(self, agent: str) -> Any:
            return spaces.Box(1, 2, (2,), np.float32)

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            self.agents = ['a', 'b']
            return self._obs({'a': np.ones(2), 'b': np.full(2, 2)}), {}

        def _obs(self, at: Any) -> Any:
            return {k: (i + 1, {'at': v, 'far': np.eye(3)[i]}) for i, (k, v) in enumerate(at.items())}

        def step(self, action: Any) -> Any:
            assert all(a.shape == (2,) for a in action.values())
            flags = dict.fromkeys(self.agents, False)
            return self._obs(action), dict.fromkeys(self.agents, 0.5), flags, flags, {}

        def close(self) -> None: ...

    manager = BaseEnvManager([lambda: player_env(Walk(), 'Walk')] * 2)
    manager.reset(seed=[1, 2])
    action = np.random.default_rng(0).uniform(1, 2, (2, 2, 2)).astype(np.float32)
    view = view_of(manager, manager.step(action, manager.ready).obs)
    assert view.obs['0'].tolist() == [[1, 2], [1, 2]] and view.active.all()
    np.testing.assert_array_equal(view.obs['1']['at'], action)
    np.testing.assert_array_equal(view.obs['1']['far'][:, 1], [[0, 1, 0]] * 2)


@pytest.mark.parametrize('env_id', ['classic.tictactoe_v2', 'clasic.tictactoe_v3'])
def test_unknown_ids_name_the_nearest(env_id: str) -> None:
    pytest.importorskip('pettingzoo')
    with raises(EnvError):
        PettingZooEnvFactory({'env_id': env_id}).make()


def test_bad_ids_and_arguments_say_what_is_wrong() -> None:
    for env_id in ('nowhere:x', 'games:Nimm'):
        with raises(EnvError):
            PettingZooEnvFactory({'env_id': env_id}).make()
    with raises(EnvError):
        PettingZooEnvFactory({'env_id': 'games:Nim', 'kwargs': {'stick': 3}}).make()
    with raises(ConfigError):
        PettingZooEnvFactory({'env_id': 7}).make()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise ModuleNotFoundError("No module named 'chess'", name='chess')

    with raises(MissingDependencyError):
        PettingZooEnvFactory({'env_id': none}).make()
    for name in [name for name in sys.modules if name.split('.')[0] == 'pettingzoo']:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'pettingzoo', None)
    with raises(MissingDependencyError):
        PettingZooEnvFactory({'env_id': 'classic.tictactoe_v3'}).make()


def random_game(env: PlayerEnv, seed: int) -> list[Any]:
    """Plays legal moves at random and returns what each step gave."""
    rng, layout, given = np.random.default_rng(seed), PlayerLayout(env.player, env.player.player_num), []
    obs, _ = env.reset(seed=seed)
    done = False
    while not done:
        seen = layout.view(obs[None])
        action = np.zeros(env.player.player_num, int)
        for player in np.flatnonzero(seen.active[0]):
            legal = np.ones(env.player.action_space.n)
            if seen.obs.dtype.names:
                legal = seen.obs['action_mask'][0, player]
            action[player] = rng.choice(np.flatnonzero(legal))
        obs, _, terminated, truncated, _ = env.step(action)
        done = terminated or truncated
        given.append(layout.view(obs[None]))
    return given


@pytest.mark.parametrize(
    'env_id', ['classic.tictactoe_v3', 'pettingzoo.classic.rps_v2:env', 'classic.rps_v2']
)
def test_real_games_sum_to_zero_and_players_are_paid_what_pettingzoo_pays(env_id: str) -> None:
    module = pytest.importorskip('pettingzoo.' + env_id.removeprefix('pettingzoo.').partition(':')[0])
    env: Any = PettingZooEnvFactory({'env_id': env_id}).make()
    decided = 0
    for seed in range(12):
        totals = np.sum([view.reward[0] for view in random_game(env, seed)], axis=0)
        assert totals.sum() == 0
        decided += totals[0] != 0
        if env_id != 'classic.rps_v2':
            game, paid = module.env(), {}
            game.reset(seed=env._game_seed)
            moves = [list(move) for move in env._moves]
            for agent in game.agent_iter():
                _, reward, terminated, truncated, _ = game.last()
                paid[agent] = paid.get(agent, 0) + reward
                over = terminated or truncated
                game.step(None if over else int(moves.pop(0)[game.possible_agents.index(agent)]))
            assert not moves and [paid[agent] for agent in game.possible_agents] == totals.tolist()
    assert decided >= 4
