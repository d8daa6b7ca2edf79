"""Wraps multi-player games, in either of PettingZoo's interfaces, as Gymnasium envs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from rlframe.data.players import PlayerLayout
from rlframe.data.timestep import NO_INFO, Array, EnvSpec, is_finite
from rlframe.envs.contract import Remarks, remark_mask
from rlframe.errors import EnvContractError, IncompatibleError, NonFiniteError
from rlframe.utils.seed import generator_of

if TYPE_CHECKING:
    Env = gymnasium.Env[Any, Any]
else:
    Env = gymnasium.Env


class PlayerEnv(Env):
    """A game of P players as one env, whose observation is the record of a ``PlayerLayout``.

    An action holds one entry per player, [P, ...]; those of inactive players are ignored. The reward of
    a step is that of player 0; the record holds everybody's. Each episode begins with a seed, drawn by the env if none
    is given, so that seed and moves determine the state of a game: this is its state for checkpoints.

    Args:
        game: The game; ``possible_agents`` are its players, in this order.
        name: Name of the game.

    Raises:
        IncompatibleError: If the players have different spaces.
    """

    player: EnvSpec
    """The spaces of each player."""

    def __init__(self, game: Any, name: str) -> None:
        self.game = game
        self.metadata = dict(game.metadata)
        """The game."""
        self.live_games = [game]
        self.render_mode = getattr(game, 'render_mode', None)
        agents = list(game.possible_agents)
        self._index = {agent: i for i, agent in enumerate(agents)}
        obs_space, action_space = shared_spaces(game, agents, name)
        self.player = EnvSpec(obs_space, action_space, len(agents), name=name)
        self._layout = PlayerLayout(self.player, len(agents))
        self._record = self._layout.new_record()
        self._is_discrete = isinstance(action_space, gymnasium.spaces.Discrete)
        self.observation_space = gymnasium.spaces.Box(0, 255, (self._layout.nbytes,), np.uint8)
        self.action_space = batch_space(action_space, len(agents))
        self._remarks = Remarks()
        self._game_seed = 0
        self._moves: list[Array] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._replay(int(self.np_random.integers(2**31)) if seed is None else seed, [])
        return self._layout.to_bytes(self._record), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._moves.append(np.array(action))
        self._move(action)
        record = self._record[0]
        over = record['terminated'] | record['truncated']
        done = bool(over.all())
        terminated = done and bool(record['terminated'].any())
        reward = float(record['reward'][0])
        return self._layout.to_bytes(self._record), reward, terminated, done and not terminated, {}

    def _replay(self, seed: int, moves: list[Array]) -> None:
        """Begins a game and makes moves."""
        self._game_seed = seed
        self._moves = list(moves)
        self._record[:] = np.zeros((), self._record.dtype)
        self._begin(seed)
        for action in moves:
            self._move(action)

    def _move(self, action: Array) -> None:
        self._record['reward'], self._record['active'] = 0.0, False
        self._play(action)
        if not is_finite(self._record['reward']):
            raise NonFiniteError(
                f'{self.player.name}: the rewards of its players are {self._record["reward"][0]}'
            )

    @abstractmethod
    def _begin(self, seed: int) -> None:
        """Begins a game and records the players' observations."""

    @abstractmethod
    def _play(self, action: Array) -> None:
        """Makes the moves of all active players and records the results."""

    def _own(self, action: Array, player: int) -> Any:
        return int(action[player]) if self._is_discrete else action[player]

    def _note(self, agent: Any, obs: Any, reward: float, over: Sequence[bool], info: Any = NO_INFO) -> None:
        """Records a player's observation and reward; the player is active unless its game is over."""
        player = self._index[agent]
        record = self._record
        terminated, truncated = over
        remark_mask(info, self.player, self._remarks, 'a player gets it as a part of its observation')
        self._layout.put_obs(record, player, obs)
        record['reward'][0, player] += reward
        record['terminated'][0, player] = terminated
        record['truncated'][0, player] = truncated and not terminated
        record['active'][0, player] = not (terminated or truncated)

    def get_state(self) -> dict[str, Any]:
        """Returns the state of the game."""
        return {
            'rng': self.np_random.bit_generator.state,
            'seed': self._game_seed,
            'moves': np.array(self._moves),
            'record': self._layout.to_bytes(self._record),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of a game by replaying its moves.

        Raises:
            EnvContractError: If the replay leads to another state.
        """
        self._replay(state['seed'], list(state['moves']))
        if not np.array_equal(self._layout.to_bytes(self._record), state['record']):
            raise EnvContractError(
                f'{self.player.name}: the same seed and moves led to another position than when the checkpoint was saved',
                remedy='Its reset(seed) must decide about everything that is random in a game.',
            )
        self.np_random = generator_of(state['rng'])

    def render(self) -> Any:
        return self.game.render()

    def close(self) -> None:
        self.game.close()


class TurnEnv(PlayerEnv):
    """A game in which one player moves at a time (PettingZoo's AEC interface).

    A player gets its reward when it is its turn: the sum since its last turn; at the end everybody gets the rest.
    """

    def _begin(self, seed: int) -> None:
        self.game.reset(seed=seed)
        self._next_turn()

    def _play(self, action: Array) -> None:
        mover = self._index[self.game.agent_selection]
        self.game.step(self._own(action, mover))
        self._next_turn()

    def _next_turn(self) -> None:
        """Records the next player and its observation; players whose game is over leave."""
        while self.game.agents:
            agent = self.game.agent_selection
            obs, reward, terminated, truncated, info = self.game.last()
            self._note(agent, obs, reward, (terminated, truncated), info)
            if not (terminated or truncated):
                return
            self.game.step(None)
        self._record['terminated'] |= ~self._record['truncated']  # also of players that left silently


class SimultaneousEnv(PlayerEnv):
    """A game in which all players move at once (PettingZoo's parallel interface)."""

    def _begin(self, seed: int) -> None:
        obs, infos = self.game.reset(seed=seed)
        for agent in self.game.agents:
            self._note(agent, obs[agent], 0.0, (False, False), infos.get(agent, {}))

    def _play(self, action: Array) -> None:
        agents = list(self.game.agents)
        chosen = {agent: self._own(action, self._index[agent]) for agent in agents}
        obs, reward, terminated, truncated, infos = self.game.step(chosen)
        for agent in agents:
            over = terminated[agent], truncated[agent]
            self._note(agent, obs[agent], reward[agent], over, infos.get(agent, {}))


def player_env(game: Any, name: str) -> PlayerEnv:
    """Returns a game as an env, which it may be already; a game with ``agent_selection`` or ``last`` is turn-based.

    Raises:
        IncompatibleError: If it is neither, or its players have different spaces.
    """
    if isinstance(game, PlayerEnv):
        return game
    if not hasattr(game, 'possible_agents') or not hasattr(game, 'step'):
        raise IncompatibleError(
            f'{name}: {type(game).__name__} is not a game of several players',
            where='env.env_id',
            remedy="It must have PettingZoo's AEC or parallel interface; for one player, use env.type='gym'.",
        )
    return TurnEnv(game, name) if hasattr(game, 'last') else SimultaneousEnv(game, name)


def shared_spaces(game: Any, agents: list[Any], name: str) -> tuple[Any, Any]:
    """Returns the observation space and the action space of all players.

    Raises:
        IncompatibleError: If they have different ones.
    """
    first = agents[0]
    for what in ('observation_space', 'action_space'):
        space = getattr(game, what)
        for agent in agents[1:]:
            if space(agent) != space(first):
                raise IncompatibleError(
                    f'{name}: {agent} has the {what} {space(agent)!r}, {first} has {space(first)!r}',
                    where='env.env_id',
                    remedy="All players need the same spaces; supersuit's pad_observations_v0 and pad_action_space_v0 make"
                    ' them so; with agents:, env.kwargs.pad=True does.',
                )
    return game.observation_space(first), game.action_space(first)
