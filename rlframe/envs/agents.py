"""Games in which all agents act at once, as a vector env with a row for each agent: one policy acts for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from rlframe.data.observation import pack
from rlframe.data.timestep import Array, BoolArray, FloatArray
from rlframe.envs.gym_env import import_needed, make_by_id
from rlframe.envs.player_env import shared_spaces
from rlframe.errors import ConfigError, EnvContractError, EnvError
from rlframe.utils.seed import generator_of

if TYPE_CHECKING:
    VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
else:
    VectorEnv = gymnasium.vector.VectorEnv


class Agents(VectorEnv):
    """The agents of N / P games of P agents: row k P + i is agent i of game k.

    Args:
        num_envs: Number of rows N, a multiple of P. 1 is allowed for reading the spaces; ``reset`` then raises.
        game: A module with PettingZoo's ``parallel_env``, such as ``'mpe2.simple_spread_v3'``; ``'module:name'`` of what
            makes such a game; or ``'module:ID'`` of an env in Gymnasium that has a ``Tuple`` of spaces, such as
            ``'lbforaging:Foraging-8x8-2p-1f-v3'``.
        kwargs: Passed on to the game.

    Raises:
        ConfigError: If N is no multiple of P.
        EnvError: If the game cannot be made.
        IncompatibleError: If the agents have different spaces.
    """

    metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, game: str, **kwargs: Any) -> None:
        first = make_game(game, kwargs)
        self.agents: list[Any] = list(first.possible_agents)
        count = len(self.agents)
        if num_envs != 1:
            self._check_rows(num_envs)
        more = max(num_envs // count, 1) - 1
        self.live_games = [first, *(make_game(game, kwargs) for _ in range(more))]
        self.num_envs, self.game_name = num_envs, game
        # the seed of each running game and the actions of its agents, which are its state for checkpoints
        self._seeds = [0] * len(self.live_games)
        self._moves: list[list[Array]] = [[] for _ in self.live_games]
        self.single_observation_space, self.single_action_space = shared_spaces(first, self.agents, game)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._check_rows(self.num_envs)
        super().reset(seed=seed)
        return self._stacked([obs for k in range(len(self.live_games)) for obs in self._begun(k)]), {}

    def _check_rows(self, rows: int) -> None:
        count = len(self.agents)
        if rows % count:
            near = [max(rows // count, 1) * count, (rows // count + 1) * count]
            raise ConfigError(
                f'each of the {count} agents of a game is a row',
                where='env',
                got=f'{rows} rows',
                expected=f'a multiple of {count}, such as {" or ".join(map(str, dict.fromkeys(near)))}',
                remedy='Set env.collector_env_num, evaluator_env_num and n_evaluator_episode.',
            )

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        count, found = len(self.agents), []
        reward, terminated, truncated = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), np.bool_)
        final = np.full(self.num_envs, None, object)
        for k in range(len(self.live_games)):
            own = slice(k * count, (k + 1) * count)
            self._moves[k].append(np.array(actions[own]))
            obs, *columns, _ = self._moved(k, actions[own])
            everyone = set(self.agents)
            if any(column.keys() != everyone for column in (obs, *columns)):
                raise self._left_early(f'step() told of {list(obs)}, and {self.agents} act')
            for array, column in zip((reward, terminated, truncated), columns, strict=True):
                array[own] = [column[agent] for agent in self.agents]
            rows, over = [obs[agent] for agent in self.agents], terminated[own] | truncated[own]
            if over.any():
                if not over.all():
                    raise self._left_early(f'the game is over for some agents only: {over.tolist()}')
                for row, last in enumerate(rows, own.start):
                    final[row] = last
                rows = self._begun(k)
            found += rows
        is_over = terminated | truncated
        info = {'final_obs': final, '_final_obs': is_over} if is_over.any() else {}
        return self._stacked(found), reward, terminated, truncated, info

    def _begun(self, k: int, seed: int | None = None) -> list[Any]:
        """Begins game k, with the next seed if none is given, and returns the observation of each agent."""
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        self._seeds[k], self._moves[k] = own, []
        answer = self.live_games[k].reset(seed=own)
        obs = answer[0] if isinstance(answer, tuple) else answer
        return [obs[agent] for agent in self.agents]

    def _moved(self, k: int, actions: Any) -> Any:
        """Returns what a step of game k with the actions of its agents, [P, ...], returns."""
        is_class = isinstance(self.single_action_space, gymnasium.spaces.Discrete)
        each = [int(action) if is_class else action for action in actions]
        return self.live_games[k].step(dict(zip(self.agents, each, strict=True)))

    def _left_early(self, what: str) -> EnvContractError:
        return EnvContractError(
            f'{self.game_name}: {what}',
            remedy='All agents have to play to the end, as with supersuit.black_death_v3; env.type=pettingzoo plays other games.',
        )

    def get_state(self) -> dict[str, Any]:
        """Returns the seeds and moves of the running games, and the state of the generator of seeds."""
        moves = [np.array(moves) for moves in self._moves]
        return {'rng': self.np_random.bit_generator.state, 'seeds': list(self._seeds), 'moves': moves}

    def set_state(self, state: dict[str, Any]) -> None:
        """Replays the moves of the games: exact only if the seed given to ``reset`` determines all randomness."""
        for k, (seed, moves) in enumerate(zip(state['seeds'], state['moves'], strict=True)):
            self._begun(k, seed)
            for actions in moves:
                self._moves[k].append(actions)
                self._moved(k, actions)
        self.np_random = generator_of(state['rng'])

    def _stacked(self, rows: list[Any]) -> Array:
        """Returns observations as rows of an array."""
        return np.stack([pack(self.single_observation_space, obs, 'unsafe') for obs in rows[: self.num_envs]])

    def close_extras(self, **kwargs: Any) -> None:
        for game in self.live_games:
            game.close()


class TupleGame:
    """An env of Gymnasium for P agents, whose spaces are tuples and whose reward is a list, in PettingZoo's parallel interface.

    Each episode has a new env, so that its seed alone determines it; envs may keep something of the last episode.

    Args:
        env_id: The id of the env.
        kwargs: Passed on to it.

    Raises:
        EnvError: If an observation or an action is no tuple of P parts.
    """

    def __init__(self, env_id: str, kwargs: dict[str, Any]) -> None:
        self.env_id, self.kwargs = env_id, kwargs
        self.env = self._made()
        spaces = self.env.observation_space, self.env.action_space
        if not all(isinstance(space, gymnasium.spaces.Tuple) for space in spaces):
            raise EnvError(
                f'{env_id} is no env for several agents',
                where='env.kwargs',
                got=spaces[1],
                expected='observations and actions that are tuples',
                remedy='Take the id without agents: in front.',
            )
        self.obs_spaces, self.action_spaces = spaces
        self.possible_agents = list(range(len(self.action_spaces)))

    def _made(self) -> Any:
        return make_by_id(self.env_id, self.kwargs)

    def observation_space(self, agent: int) -> Any:
        return self.obs_spaces[agent]

    def action_space(self, agent: int) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int) -> tuple[dict[int, Any], dict[str, Any]]:
        self.env.close()
        self.env = self._made()
        obs, info = self.env.reset(seed=seed)
        return dict(enumerate(obs)), info

    def step(self, actions: dict[int, Any]) -> tuple[dict[int, Any], ...]:
        obs, reward, *over, _ = self.env.step(tuple(actions.values()))
        columns = [dict.fromkeys(self.possible_agents, flag) for flag in over]
        return dict(enumerate(obs)), dict(enumerate(reward)), *columns, {}

    def close(self) -> None:
        self.env.close()


def make_game(name: str, kwargs: dict[str, Any]) -> Any:
    """Returns a game with PettingZoo's parallel interface.

    Raises:
        EnvError: If the game cannot be created, or does not have the parallel interface.
        MissingDependencyError: If a package is not installed.
    """
    module, _, maker = name.partition(':')
    found = import_needed(module, name, 'env.kwargs')
    if maker in gymnasium.registry:
        return TupleGame(maker, kwargs)
    make = getattr(found, maker or 'parallel_env', None)
    if not callable(make):
        raise EnvError(f'{module} has no {maker or "parallel_env"!r}', where='env.kwargs')
    try:
        game = make(**kwargs)
    except TypeError as error:
        raise EnvError(f'cannot make {name!r}: {error}', where='env.kwargs') from error
    if not hasattr(game, 'possible_agents') or hasattr(game, 'last'):
        raise EnvError(f'{name} is no game in which all agents act at once', where='env.kwargs')
    return game
