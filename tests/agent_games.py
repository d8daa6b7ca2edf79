"""Games in PettingZoo's parallel interface whose agents act at once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Meeting:
    """Three agents see the same place of four, and earn 1 each for naming it; an episode has ``length`` steps.

    Args:
        length: Steps of an episode.
        leaver: Whether the last agent leaves after the first step.
    """

    metadata: dict[str, Any] = {'name': 'meeting'}
    render_mode = None
    possible_agents = ['a', 'b', 'c']

    def __init__(self, length: int = 6, leaver: bool = False) -> None:
        self._length, self._leaver = length, leaver

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(0, 9, (5,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(4)

    def _obs(self) -> dict[str, Any]:
        self._place = int(self._rng.integers(4))
        return {
            agent: np.float32([*np.eye(4)[self._place], i]) for i, agent in enumerate(self.possible_agents)
        }

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._rng, self._left = np.random.default_rng(seed), self._length
        return self._obs(), {agent: {} for agent in self.possible_agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert list(actions) == self.possible_agents and all(
            type(action) is int for action in actions.values()
        )
        reward = {agent: float(action == self._place) for agent, action in actions.items()}
        self._left -= 1
        over = {agent: self._left == 0 or (self._leaver and agent == 'c') for agent in actions}
        return self._obs(), reward, over, dict.fromkeys(actions, False), {agent: {} for agent in actions}

    def close(self) -> None: ...


def parallel_env(**kwargs: Any) -> Meeting:
    return Meeting(**kwargs)
