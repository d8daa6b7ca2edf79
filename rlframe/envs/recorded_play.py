"""Transitions of hand-written controllers that err more or less, for learning from data: Pendulum-v1 and CartPole-v1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlframe.data.timestep import Array, FloatArray
from rlframe.envs.cartpole_expert import expert

ERRORS = 0.0, 0.3, 0.6, 1.0
"""Probabilities of a random action; episodes take turns."""


def swing_up(obs: FloatArray) -> FloatArray:
    """Returns a torque in Pendulum-v1: it gives the pendulum the energy that it has upright, and holds it there."""
    cos, sin, spin = obs
    angle = math.atan2(sin, cos)
    if cos > 0.8:
        return np.array([np.clip(-8 * angle - 2 * spin, -2, 2)], np.float32)
    missing = 15 * (1 - cos) - spin**2 / 2
    return np.array([2 * np.sign(spin * missing) or 2], np.float32)


def record(
    env_id: str,
    play: Callable[[FloatArray], Any],
    episodes: int,
    errors: Sequence[float] = ERRORS,
    seed: int = 0,
) -> dict[str, Array]:
    """Lets a controller play some episodes, whose probabilities of a random action take turns.

    Returns:
        A row for each env step, [T, ...]: ``obs``, ``next_obs``, ``action``, ``reward``, ``terminated``, ``truncated`` and
        ``episode``, counted from 0.
    """
    env: Any = gymnasium.make(env_id)
    env.action_space.seed(seed)
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        done = False
        while not done:
            is_random = rng.random() < errors[episode % len(errors)]
            action = env.action_space.sample() if is_random else play(obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs, next_obs, action, np.float32(reward), terminated, truncated, episode))
            obs = next_obs
            done = terminated or truncated
    env.close()
    names = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'truncated', 'episode'
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def pendulum() -> dict[str, Array]:
    """Returns 40 episodes of Pendulum-v1."""
    return record('Pendulum-v1', swing_up, 40)


def cartpole() -> dict[str, Array]:
    """Returns 80 episodes of CartPole-v1."""
    return record('CartPole-v1', expert, 80)


def cartpole_demos() -> dict[str, Array]:
    """Returns 10 episodes of CartPole-v1 without errors."""
    return record('CartPole-v1', expert, 10, errors=(0.0,))


def pendulum_demos() -> dict[str, Array]:
    """Returns 10 episodes of Pendulum-v1 without errors."""
    return record('Pendulum-v1', swing_up, 10, errors=(0.0,))
