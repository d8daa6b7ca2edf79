"""Episodes of an env with goals, whose rows say where they come from, and rewards of such goals."""

from __future__ import annotations

import numpy as np

from rlframe.data import Array, Batch

OBS = np.dtype([('observation', 'f4', (1,)), ('achieved_goal', 'f4', (2,)), ('desired_goal', 'f4', (2,))])
NOWHERE = (-1.0, -1.0)


class Equal:
    """A goal is reached by what equals it: reward 0 and the end, else -1."""

    def __init__(self, ends: bool = True) -> None:
        self.ends = ends

    def reward(self, achieved: Array, desired: Array) -> Array:
        return -(achieved != desired).any(-1).astype(np.float64)

    def terminated(self, achieved: Array, desired: Array) -> Array | None:
        return (achieved == desired).all(-1) if self.ends else None


def episode(number: int, length: int, env: int = 0) -> Batch:
    """Returns an episode that never reaches its goal; its step t reaches the goal (number, t)."""
    t = np.arange(length)
    obs, next_obs = np.zeros(length, OBS), np.zeros(length, OBS)
    for part, time in ((obs, t - 1), (next_obs, t)):
        part['observation'][:, 0] = time
        part['achieved_goal'] = np.stack([np.full(length, number), time], axis=1)
        part['desired_goal'] = NOWHERE
    return Batch(
        obs=obs,
        next_obs=next_obs,
        action=t,
        reward=np.full(length, -1, np.float32),
        terminated=np.zeros(length, bool),
        truncated=t == length - 1,
        env_id=np.full(length, env, np.int32),
        episode_step=t.astype(np.int32),
    )
