"""BitFlip for peers, as ``rlframe/BitFlip-v0`` is: section 3.1 of Andrychowicz et al. (2017), with the reward 1 for the goal."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class BitFlip(gymnasium.Env):
    """15 bits are to be flipped, one a step, until they are those of the goal, within 15 steps."""

    def __init__(self) -> None:
        bits = spaces.Box(0, 1, (15,), np.float32)
        self.observation_space = spaces.Dict(observation=bits, achieved_goal=bits, desired_goal=bits)
        self.action_space = spaces.Discrete(15)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._bits, self._goal = self.np_random.integers(0, 2, (2, 15)).astype(np.float32)
        self._bits[0] = self._bits[0] if (self._bits != self._goal).any() else 1 - self._bits[0]
        self._left = 15
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self._bits[action] = 1 - self._bits[action]
        self._left -= 1
        is_reached = bool((self._bits == self._goal).all())
        return self._obs(), float(is_reached), is_reached, not is_reached and self._left == 0, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return (achieved_goal == desired_goal).all(-1).astype(np.float32)

    def _obs(self) -> Any:
        return {
            'observation': self._bits.copy(),
            'achieved_goal': self._bits.copy(),
            'desired_goal': self._goal.copy(),
        }


gymnasium.register('rlframe/BitFlip-v0', BitFlip)
