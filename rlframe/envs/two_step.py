"""The two-step game: a team that values each agent's choice by itself misses its best return."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rlframe.data.timestep import FloatArray

PAYOFF = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])
"""Rewards of the second step, by the first choice of the first agent, and the second choices of both."""


class TwoStep:
    """Two agents, with PettingZoo's parallel interface.

    The first choice of the first agent selects one of two games of one step: 7 whatever they do, or 0, 1, 1 and 8, for both
    choosing 1. Each earns half of the reward. Both see which step it is, and which game.

    Source:
        Rashid et al., QMIX: Monotonic Value Function Factorisation for Deep Multi-Agent Reinforcement Learning (2018),
        section 5 and table 1.
    """

    metadata = {'name': 'two_step'}
    possible_agents = ['agent_0', 'agent_1']
    state_space = spaces.Box(0, 1, (3,), np.float32)

    def __init__(self) -> None:
        self.agents: list[str] = []
        self._game = 0

    def observation_space(self, agent: str) -> Any:
        return self.state_space

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def state(self) -> FloatArray:
        """Returns the first step, or the game of the second, one-hot, float32 [3]."""
        state = np.zeros(3, np.float32)
        state[self._game] = 1
        return state

    def reset(self, seed: int | None = None) -> tuple[dict[str, FloatArray], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        self._game = 0
        return self._told(self.state()), self._told({})

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        chosen = [actions[agent] for agent in self.possible_agents]
        is_over = self._game > 0
        reward = PAYOFF[self._game - 1][chosen[0], chosen[1]] / 2 if is_over else 0.0
        self._game = self._game if is_over else 1 + chosen[0]
        self.agents = [] if is_over else self.agents
        answer: tuple[Any, ...] = self.state(), float(reward), is_over, False, {}
        return tuple(self._told(each) for each in answer)

    def _told(self, what: Any) -> dict[str, Any]:
        return {agent: what for agent in self.possible_agents}

    def close(self) -> None:
        """Ends nothing."""


parallel_env = TwoStep
