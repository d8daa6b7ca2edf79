"""BitFlip: bits are to be flipped, one in each step, until they are those of a goal."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.data.timestep import Array, FloatArray

Obs = dict[str, FloatArray]


class BitFlip(gymnasium.Env[Obs, Any]):
    """An action flips one of n bits; a step that reaches the goal earns 1 and ends the episode, as step n does.

    Bits and goals are drawn uniformly, and differ at the start.

    Args:
        n_bits: Number of bits, n.

    Source:
        Andrychowicz et al., Hindsight Experience Replay (2017), section 3.1; the reward is that of DI-engine's ``bitflip``.
    """

    def __init__(self, n_bits: int = 15) -> None:
        if n_bits < 1:
            raise ValueError(f'n_bits must be >= 1, got {n_bits}')
        self.n_bits = n_bits
        bits = spaces.Box(0, 1, (n_bits,), np.float32)
        names = 'observation', 'achieved_goal', 'desired_goal'
        self.observation_space: Any = spaces.Dict({name: bits for name in names})
        self.action_space = spaces.Discrete(n_bits)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        self._bits, self._goal = self._draw(), self._draw()
        while (self._bits == self._goal).all():
            self._goal = self._draw()
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self._step += 1
        self._bits[action] = 1 - self._bits[action]
        is_success = bool((self._bits == self._goal).all())
        is_over = self._step >= self.n_bits
        info = {'is_success': is_success} if is_success or is_over else {}
        return self._obs(), float(is_success), is_success, is_over and not is_success, info

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """Returns 1 where a goal, or each of several, [..., n], is reached, else 0; [...]."""
        return (achieved_goal == desired_goal).all(-1).astype(np.float32)

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """Returns whether a goal, or each of several, [..., n], is reached; [...]."""
        return (achieved_goal == desired_goal).all(-1)

    def _draw(self) -> FloatArray:
        return self.np_random.integers(0, 2, self.n_bits).astype(np.float32)

    def _obs(self) -> Obs:
        parts = {'observation': self._bits, 'achieved_goal': self._bits, 'desired_goal': self._goal}
        return {name: part.copy() for name, part in parts.items()}
