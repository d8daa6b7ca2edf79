"""An env whose state cannot be had, for checkpoints that must do without; a module of its own, for a config to name."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class ClosedCartPole(gymnasium.Wrapper):
    """CartPole with a time limit, which holds something that is no data."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gymnasium.wrappers.TimeLimit(CartPoleEnv(**kwargs), 200))
        self.handle = iter(())
