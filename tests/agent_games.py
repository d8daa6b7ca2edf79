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


class Pair(gymnasium.Env):
    """Two agents see whether they chose the same in the step before, and each earns 1 more for it; the first begins with
    what the last episode of this env ended with."""

    observation_space = gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 9, (2,), np.float32)] * 2)
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)] * 2)

    def __init__(self, length: int = 5) -> None:
        self._length, self._same = length, False

    def _obs(self) -> Any:
        return tuple(np.float32([self._same, i]) for i in range(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = self._length
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        self._same = action[0] == action[1]
        return self._obs(), [int(self._same), 0.5], self._left == 0, False, {}


gymnasium.register('Pair-v0', 'agent_games:Pair')


def parallel_env(**kwargs: Any) -> Meeting:
    return Meeting(**kwargs)
