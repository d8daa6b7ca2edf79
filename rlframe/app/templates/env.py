"""A custom env: a walk along a line, whose reward is the way to the right.

    rlframe check-env new_env:NewEnv
    rlframe train --env new_env:NewEnv --policy ppo --env-step 20000

check-env says what is wrong with an env, and which line to change.
"""

from typing import Any

import gymnasium
import numpy as np


class NewEnv(gymnasium.Env[Any, Any]):
    """Ends on the right, or after 50 env steps; arguments of ``__init__`` would be options: env.kwargs.NAME=VALUE."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # left, right

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)  # seeds self.np_random, from which all randomness must be drawn
        self.position = self.np_random.uniform(-5.0, 0.0)
        self.steps = 0
        return np.array([self.position], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = (1.0 if action == 1 else -1.0) + self.np_random.normal(0.0, 0.1)
        self.position = float(np.clip(self.position + move, -10.0, 10.0))
        self.steps = self.steps + 1
        # obs, reward, terminated, truncated, info
        return np.array([self.position], np.float32), move, self.position >= 9.0, self.steps >= 50, {}
