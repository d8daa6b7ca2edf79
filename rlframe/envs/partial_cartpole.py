"""CartPole whose velocities are hidden: one observation does not tell what to do, some in a row do.

Importing this module registers ``rlframe/CartPoleNoVelocity-v1``.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rlframe.data.timestep import FloatArray

SEEN = [0, 2]
"""Which of position, velocity, angle and angular velocity are observed."""


class CartPoleNoVelocity(CartPoleEnv):
    """CartPole of which position and angle are observed, float32 [2]."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        whole: Any = self.observation_space
        self.observation_space = gymnasium.spaces.Box(whole.low[SEEN], whole.high[SEEN], dtype=np.float32)

    def reset(self, **kwargs: Any) -> tuple[FloatArray, dict[str, Any]]:
        obs, info = super().reset(**kwargs)
        return obs[SEEN], info

    def step(self, action: int) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:  # type: ignore[override]  # Gymnasium's own class names narrower types than its interface
        obs, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]  # Gymnasium's
        return obs[SEEN], float(reward), terminated, truncated, info


gymnasium.register(
    'rlframe/CartPoleNoVelocity-v1',
    entry_point=CartPoleNoVelocity,
    max_episode_steps=500,
    reward_threshold=475.0,
)
