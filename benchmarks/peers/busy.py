"""CartPole whose step costs more time of a core, as slower envs do."""

from time import perf_counter
from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv


class Busy(CartPoleEnv):
    """CartPole that computes for so many microseconds more in each step; its episodes have at most 500 steps.

    Args:
        microseconds: The additional time.
    """

    def __init__(self, microseconds: int = 0) -> None:
        super().__init__()
        self._seconds, self._count = microseconds / 1e6, 0

    def reset(self, **options: Any) -> Any:
        self._count = 0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        until = perf_counter() + self._seconds
        obs, reward, terminated, _, info = super().step(action)
        self._count += 1
        while perf_counter() < until:
            pass
        return obs, reward, terminated, self._count == 500, info
