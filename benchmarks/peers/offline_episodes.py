"""Episodes by which both sides of offline_returns.py are judged; it imports neither of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

EPISODES = 100
FIRST_SEED = 1_000_000


def returns(env_id: str, act: Callable[[Any], Any]) -> list[float]:
    """Returns the returns of episodes from fixed seeds; ``act`` gets observations [n, ...] and gives n actions."""
    envs = [gymnasium.make(env_id) for _ in range(EPISODES)]
    obs = np.stack([env.reset(seed=FIRST_SEED + i)[0] for i, env in enumerate(envs)])
    total = np.zeros(EPISODES)
    playing = np.arange(EPISODES)
    while playing.size:
        actions = act(obs[playing])
        ended = []
        for i, action in zip(playing, actions, strict=True):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            total[i] += float(reward)
            if terminated or truncated:
                ended.append(i)
        playing = np.setdiff1d(playing, ended)
    for env in envs:
        env.close()
    return total.tolist()
