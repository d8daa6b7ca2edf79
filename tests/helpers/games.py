"""Games of several players whose every value tells where it comes from, in PettingZoo's interfaces but without PettingZoo."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from fakes import CountingEnv
from gymnasium import spaces

from rlframe.envs import BaseEnvManager
from rlframe.envs.player_env import SimultaneousEnv, TurnEnv, player_env

NUMBER, SEED, TIME, PLAYER = range(4)  # columns of a scripted game's obs


class CountingPlayers(SimultaneousEnv):
    """A game whose players all see, do and get what the one player of a ``CountingEnv`` does."""

    def __init__(self, number: int, players: int = 2, **options: Any) -> None:
        self.counting = CountingEnv(number, **options)
        self.seeds: list[int | None] = []
        super().__init__(CountingGame(self.counting, players), 'Counting')

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        *answer, _ = super().step(action)
        return *answer, self.game.info

    def get_state(self) -> Any:
        game = {'episode': self.counting.episode, 'step': self.counting.step_number}
        return super().get_state() | {'game': game}

    def set_state(self, state: Any) -> None:
        self.counting.episode = state['game']['episode'] - 1
        super().set_state(state)

    @property
    def frames(self) -> int:
        return self.counting.frames

    @property
    def episode(self) -> int:
        return self.counting.episode


class CountingGame:
    """The parallel interface of ``CountingPlayers``."""

    metadata: dict[str, Any] = {}

    def __init__(self, env: CountingEnv, players: int) -> None:
        self.env, self.possible_agents = env, [f'p{i}' for i in range(players)]
        self.agents: list[str] = []
        self.info: dict[str, Any] = {}

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        obs, _ = self.env.reset(seed=seed)
        return dict.fromkeys(self.agents, obs), {}

    def step(self, actions: dict[str, Any]) -> Any:
        assert list(actions) == self.agents
        *answer, self.info = self.env.step(actions['p0'])
        answers = [dict.fromkeys(self.agents, value) for value in answer]
        if answer[2] or answer[3]:
            self.agents = []
        return *answers, {}

    def render(self) -> np.ndarray:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class Script:
    """How a game will go, a function of its seed: who moves when, who gets what, who leaves early.

    Args:
        seed: Which game.
        players: Number of players, P.
        leaves: Whether all but two players may leave before the end.
        longest: Most moves of a game.
    """

    def __init__(self, seed: int, players: int, leaves: bool, longest: int) -> None:
        rng = np.random.default_rng(seed)
        self.length = int(rng.integers(1, longest + 1))
        self.reward = rng.integers(-3, 4, (self.length, players)) * (rng.random((self.length, players)) < 0.6)
        self.ends = np.full(players, self.length)  # move after which each player's game is over
        if leaves:
            self.ends[2:] = rng.integers(1, self.length + 1, players - 2)
        for player in range(players):
            self.reward[self.ends[player] :, player] = 0
        self.mover = [int(rng.choice(np.flatnonzero(self.ends > t))) for t in range(self.length)]
        self.is_truncated = bool(rng.random() < 0.5)


class TurnGame:
    """A scripted game of turns, in random order; its obs is (number, seed, moves made, player).

    Args:
        number: Which of several it is.
        players: Number of players.
        leaves: Whether players may leave before the end.
        longest: Most moves of a game.
        masked: Whether observations are dicts with an ``action_mask``, which the game insists on.
    """

    metadata: dict[str, Any] = {}

    def __init__(
        self, number: int = 0, players: int = 2, leaves: bool = False, longest: int = 9, masked: bool = False
    ) -> None:
        self.number, self.masked = number, masked
        self.possible_agents = [f'player_{i}' for i in range(players)]
        self._options = players, leaves, longest
        self.agents: list[str] = []
        self.played: list[int] = []
        self.frames = 0

    def observation_space(self, agent: str) -> Any:
        box = spaces.Box(-(2**40), 2**40, (4,), np.int64)
        return spaces.Dict(observation=box, action_mask=spaces.MultiBinary(3)) if self.masked else box

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        assert seed is not None
        self.seed, self.script, self.time = seed, Script(seed, *self._options), 0
        self.agents = list(self.possible_agents)
        self._due = dict.fromkeys(self.agents, 0)
        self.played.append(seed)
        self._select()

    def _select(self) -> None:
        over = [a for a in self.agents if self._is_over(a)]
        if over:
            self.agent_selection = over[0]
        elif self.agents:
            self.agent_selection = self.possible_agents[self.script.mover[self.time]]

    def _is_over(self, agent: str) -> bool:
        return self.time >= self.script.ends[self.possible_agents.index(agent)]

    def mask(self, player: int) -> np.ndarray:
        legal = np.random.default_rng((self.seed, self.time, player)).random(3) < 0.5
        return (legal if legal.any() else np.ones(3, bool)).astype(np.int8)

    def last(self) -> Any:
        agent = self.agent_selection
        player = self.possible_agents.index(agent)
        obs: Any = np.array([self.number, self.seed, self.time, player])
        if self.masked:
            obs = {'observation': obs, 'action_mask': self.mask(player)}
        over = self._is_over(agent)
        cut = over and self.script.is_truncated
        return obs, self._due[agent], over and not cut, cut, {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self._is_over(agent):
            assert action is None
            self.agents.remove(agent)
        else:
            assert not self.masked or self.mask(self.possible_agents.index(agent))[action]
            self.frames += 1
            self._due[agent] = 0
            for player, name in enumerate(self.possible_agents):
                self._due[name] += int(self.script.reward[self.time, player])
            self.time += 1
        self._select()

    def close(self) -> None: ...


class BrokenTurns(TurnEnv):
    """Declares the third move of every other game void."""

    def step(self, action: Any) -> Any:
        *answer, info = super().step(action)
        is_void = len(self.game.played) % 2 == 1 and self.game.time == 3
        return *answer, {'abnormal': True} if is_void else info


class Nim:
    """Take 1 to 3 of the sticks; who takes the last one wins. Left with a multiple of 4 one loses, otherwise one can win."""

    metadata: dict[str, Any] = {}

    def __init__(self, sticks: int = 10) -> None:
        self.sticks, self.possible_agents = sticks, ['first', 'second']
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (self.sticks + 1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.left, self.winner = self.sticks, ''
        self.agents, self.agent_selection = list(self.possible_agents), 'first'

    def last(self) -> Any:
        agent = self.agent_selection
        reward = 0 if not self.winner else 1 if agent == self.winner else -1
        return np.eye(self.sticks + 1, dtype=np.float32)[self.left], reward, bool(self.winner), False, {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.winner:
            self.agents.remove(agent)
        else:
            self.left = max(0, self.left - 1 - action)
            self.winner = '' if self.left else agent
        self.agent_selection = 'second' if agent == 'first' else 'first'

    def close(self) -> None: ...


def counting_players(env_num: int, **options: Any) -> BaseEnvManager:
    """Returns a manager of counting games; an option given as a list of functions is one per env."""

    def own(i: int) -> dict[str, Any]:
        return {k: v[i] if isinstance(v, list) and callable(v[0]) else v for k, v in options.items()}

    return BaseEnvManager([partial(CountingPlayers, i, **own(i)) for i in range(env_num)])


def turn_games(env_num: int, **options: Any) -> BaseEnvManager:
    """Returns a manager of scripted games of turns."""

    def make(i: int) -> Any:
        return player_env(TurnGame(i, **options), 'Turns')

    return BaseEnvManager([partial(make, i) for i in range(env_num)])


def games_of(manager: Any) -> list[TurnGame]:
    """Returns the games inside a manager."""
    return [env.game for env in getattr(manager, 'inner', manager).envs.values()]


def expected_moves(seed: int, players: int, leaves: bool = False, longest: int = 9) -> dict[int, list[Any]]:
    """Returns each player's moves of a game, by looking at the whole of its script: (time, next time, reward, flags)."""
    script = Script(seed, players, leaves, longest)
    moves: dict[int, list[Any]] = {}
    for player in range(players):
        times = [t for t, mover in enumerate(script.mover) if mover == player]
        end = int(script.ends[player])
        bounds = [*times, end]
        moves[player] = []
        for k, time in enumerate(times):
            since = 0 if k == 0 else time  # what came before the first move counts for it
            reward = int(script.reward[since : bounds[k + 1], player].sum())
            last = k == len(times) - 1
            flags = (last and not script.is_truncated, last and script.is_truncated)
            moves[player].append((time, bounds[k + 1], reward, *flags))
    return moves
