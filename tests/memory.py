"""A task that cannot be solved without a memory, and the config sections of a policy that has one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class RecallEnv(gymnasium.Env):
    """Shows a class in its first step and nothing after it; the action of the last of 6 steps that names it earns 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._class, self._left = int(self.np_random.integers(3)), 6
        return np.eye(3, dtype=np.float32)[self._class], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        done = self._left == 0
        return np.zeros(3, np.float32), float(done and action == self._class), done, False, {}


R2D2 = dict(
    policy='r2d2',
    buffer=dict(type='sequence', unroll_len=6, burn_in=2, priority=True),
    collector=dict(type='sample', mark_episodes=True),
    policy_=dict(priority=True, priority_IS_weight=True, nstep=2),
    model=dict(encoder_hidden_size_list=[16], lstm_hidden_size=16),
)
"""Sections for ``config_pair``."""
