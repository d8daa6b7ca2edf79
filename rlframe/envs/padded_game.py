"""Games whose agents see and do different things, padded so that one network serves all."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.data.observation import ACTION_MASK
from rlframe.data.timestep import Array
from rlframe.errors import IncompatibleError


def spaces_of(game: Any, agents: list[Any], name: str) -> tuple[Any, Any]:
    """Returns the observation space and the action space that all agents of a team have.

    Raises:
        IncompatibleError: If they differ; with the first two agents that do.
    """
    first, *others = agents
    for what in ('observation_space', 'action_space'):
        space = getattr(game, what)
        for agent in others:
            if space(agent) != space(first):
                raise IncompatibleError(
                    f'{name}: agents of a team have one {what}, and {first} has {space(first)!r}',
                    where='env.env_id',
                    got=f'{space(agent)!r} of {agent}',
                    expected='the same for all',
                    remedy='env.kwargs.pad=True pads the smaller ones; policy.groups=separate then gives each agent its own network.',
                )
    return game.observation_space(first), game.action_space(first)


class PaddedGame:
    """Gives all agents of a game the largest of their spaces: observations end with zeros, further actions are masked.

    Args:
        game: A game with PettingZoo's parallel interface, whose agents see numbers in a row and have Discrete actions from 0.
        name: Its name, for errors.

    Raises:
        IncompatibleError: If an agent has other spaces.

    Source:
        Terry et al., Revisiting Parameter Sharing in Multi-Agent Deep Reinforcement Learning (2020), section 3.
    """

    def __init__(self, game: Any, name: str) -> None:
        self._game = game
        self.possible_agents = list(game.possible_agents)
        seen = [game.observation_space(agent) for agent in self.possible_agents]
        self._counts = [game.action_space(agent) for agent in self.possible_agents]
        for agent, obs, action in zip(self.possible_agents, seen, self._counts, strict=True):
            is_row = isinstance(obs, spaces.Box) and len(obs.shape) == 1
            if not is_row or not isinstance(action, spaces.Discrete) or action.start:
                raise IncompatibleError(
                    f'{name}: {agent} has the spaces {obs!r} and {action!r}',
                    where='env.kwargs.pad',
                    got=True,
                    expected='a Box of one axis and a Discrete that starts at 0 for each agent',
                )
        self._size = max(obs.shape[0] for obs in seen)
        self._most = max(int(action.n) for action in self._counts)
        self._obs = spaces.Box(-np.inf, np.inf, (self._size,), np.float32)
        self._action = spaces.Discrete(self._most)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    def observation_space(self, agent: Any) -> Any:
        return self._obs

    def action_space(self, agent: Any) -> Any:
        return self._action

    def reset(self, seed: int | None = None) -> tuple[dict[Any, Array], dict[Any, Any]]:
        answer = self._game.reset(seed=seed)
        obs, infos = answer if isinstance(answer, tuple) else (answer, {})
        return self._padded(obs), self._masked(obs, infos)

    def step(self, actions: dict[Any, Any]) -> tuple[Any, ...]:
        obs, *columns, infos = self._game.step(actions)
        return self._padded(obs), *columns, self._masked(obs, infos)

    def _padded(self, obs: dict[Any, Any]) -> dict[Any, Array]:
        padded = {agent: np.zeros(self._size, np.float32) for agent in obs}
        for agent, row in padded.items():
            row[: len(obs[agent])] = obs[agent]
        return padded

    def _masked(self, obs: dict[Any, Any], infos: dict[Any, Any]) -> dict[Any, Any]:
        """Returns the infos of agents with the masks of actions that they have, and that the game allows."""
        found = {}
        for agent, action in zip(self.possible_agents, self._counts, strict=True):
            if agent in obs:
                mask = np.zeros(self._most, np.int8)
                mask[: action.n] = infos.get(agent, {}).get(ACTION_MASK, 1)
                found[agent] = {**infos.get(agent, {}), ACTION_MASK: mask}
        return found
