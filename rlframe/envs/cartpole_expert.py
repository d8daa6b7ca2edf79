"""A hand-written controller of CartPole-v1 and recordings of its episodes, for imitation learning."""

from __future__ import annotations

from collections.abc import Iterable

import gymnasium
import numpy as np

from rlframe.data.timestep import Array, FloatArray

SHOWN, HELD_OUT = range(20), range(1000, 1005)
"""Seeds of the training episodes and of the test episodes."""


def expert(obs: FloatArray) -> int:
    """Pushes in the direction in which the pole falls, slightly corrected by the cart's position."""
    position, velocity, angle, spin = obs
    return int(0.1 * position + 0.3 * velocity + 4.0 * angle + spin > 0)


def record(seeds: Iterable[int]) -> dict[str, Array]:
    """Lets the expert play an episode for each seed.

    Returns:
        The observations, ``obs`` [T, 4], and the actions, ``action`` [T], of all env steps of all episodes.
    """
    env = gymnasium.make('CartPole-v1')
    obs_seen = []
    actions = []
    for seed in seeds:
        obs, _ = env.reset(seed=seed)
        done = False
        while not done:
            obs_seen.append(obs)
            actions.append(expert(obs))
            obs, _, terminated, truncated, _ = env.step(actions[-1])
            done = terminated or truncated
    env.close()
    return {'obs': np.array(obs_seen), 'action': np.array(actions)}


def demonstrations() -> dict[str, Array]:
    """Returns 20 training episodes."""
    return record(SHOWN)


def held_out() -> dict[str, Array]:
    """Returns 5 test episodes."""
    return record(HELD_OUT)
