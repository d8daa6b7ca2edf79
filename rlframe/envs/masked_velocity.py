"""CartPole and Pendulum without velocities: a policy needs several observations in a row."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from rlframe.data.timestep import FloatArray


class MaskedVelocity(gymnasium.Env[Any, Any]):
    """Mix-in before a class of Gymnasium, which observes only some of its numbers.

    Source:
        The envs that rl-zoo3's MaskVelocityWrapper makes, which sets velocities to 0 instead of leaving them out.
    """

    seen: ClassVar[list[int]]
    """Numbers of the observation that are observed, K."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        whole: Any = self.observation_space
        low, high = whole.low[self.seen], whole.high[self.seen]
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(self, **kwargs: Any) -> tuple[FloatArray, dict[str, Any]]:
        obs, info = super().reset(**kwargs)
        return obs[self.seen], info

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs[self.seen], float(reward), terminated, truncated, info


class CartPoleNoVelocity(MaskedVelocity, CartPoleEnv):
    """CartPole that observes position and angle, float32 [2]."""

    seen = [0, 2]


class PendulumNoVelocity(MaskedVelocity, PendulumEnv):
    """Pendulum that observes the cosine and the sine of the angle, float32 [2]."""

    seen = [0, 1]
