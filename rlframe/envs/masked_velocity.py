"""CartPole and Pendulum whose velocities are hidden: one observation does not tell what to do, some in a row do."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from rlframe.data.timestep import FloatArray


class MaskedVelocity(gymnasium.Env[Any, Any]):
    """Base of an env, in front of Gymnasium's own class, of which only some numbers are observed.

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
    """CartPole of which position and angle are observed, float32 [2]."""

    seen = [0, 2]


class PendulumNoVelocity(MaskedVelocity, PendulumEnv):
    """Pendulum of which the cosine and the sine of the angle are observed, float32 [2]."""

    seen = [0, 1]
