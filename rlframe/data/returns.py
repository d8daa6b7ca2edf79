"""Returns and advantages: pure functions on ``[T, N]`` arrays, one row per env step.

``done`` marks the last step of an episode, terminated or truncated. A bootstrap value is the value of the observation
*after* the step, and is 0 if the episode terminated: at a truncation it is the value of the true last observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlframe.data.timestep import BoolArray, FloatArray
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def _check_shapes(**arrays: FloatArray | BoolArray | torch.Tensor) -> None:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) != 1:
        raise ValueError(f'shapes must agree, got {shapes}')


def discounted_return(
    reward: FloatArray, done: BoolArray, bootstrap: FloatArray, discount_factor: float
) -> FloatArray:
    """Sums discounted rewards until the episode's end or the end of the block.

    Args:
        reward: Reward of each step. float [T, N].
        done: True where the episode ended at that step. bool [T, N].
        bootstrap: Value of the obs after each step; 0 where terminated. Read where ``done`` and in the last row. float
            [T, N].
        discount_factor: Per env step, in [0, 1].

    Returns:
        float [T, N].

    Raises:
        ValueError: If the shapes differ.

    Source:
        Sutton & Barto, Reinforcement Learning (2018), eq. 3.9.
    """
    _check_shapes(reward=reward, done=done, bootstrap=bootstrap)
    result = np.empty_like(reward)
    following = bootstrap[-1]
    for t in range(len(reward) - 1, -1, -1):
        following = reward[t] + discount_factor * np.where(done[t], bootstrap[t], following)
        result[t] = following
    return result


def n_step_return(
    reward: FloatArray, done: BoolArray, bootstrap: FloatArray, discount_factor: float, nstep: int
) -> FloatArray:
    """Sums ``nstep`` discounted rewards and the discounted bootstrap value after them, stopping at episode ends.

    A window that the block cuts short is bootstrapped from the block's last row.

    Args:
        reward: Reward of each step. float [T, N].
        done: True where the episode ended at that step. bool [T, N].
        bootstrap: Value of the obs after each step; 0 where terminated. float [T, N].
        discount_factor: Per env step, in [0, 1].
        nstep: Number of rewards summed, in env steps, >= 1.

    Returns:
        float [T, N].

    Raises:
        ValueError: If the shapes differ or ``nstep`` < 1.

    Source:
        Sutton & Barto, Reinforcement Learning (2018), eq. 7.1.
    """
    _check_shapes(reward=reward, done=done, bootstrap=bootstrap)
    if nstep < 1:
        raise ValueError(f'nstep must be >= 1, got {nstep}')
    steps = len(reward)
    result, discount = np.zeros_like(reward), np.ones_like(reward)
    running = np.ones(reward.shape, dtype=bool)  # windows that may still grow, [T, N]
    for k in range(min(nstep, steps)):
        rows, ahead = slice(0, steps - k), slice(k, steps)
        grows = running[rows]
        result[rows] += np.where(grows, discount[rows] * reward[ahead], 0)
        discount[rows] = np.where(grows, discount[rows] * discount_factor, discount[rows])
        closes = grows & (done[ahead] | (k == nstep - 1))
        closes[-1] |= grows[-1]
        result[rows] += np.where(closes, discount[rows] * bootstrap[ahead], 0)
        running[rows] = grows & ~closes
    return result


def gae(
    reward: FloatArray,
    value: FloatArray,
    next_value: FloatArray,
    done: BoolArray,
    discount_factor: float,
    gae_lambda: float,
) -> FloatArray:
    """Computes generalised advantage estimates.

    Args:
        reward: Reward of each step. float [T, N].
        value: Value of the obs before each step. float [T, N].
        next_value: Value of the obs after each step; 0 where terminated. float [T, N].
        done: True where the episode ended at that step: nothing flows back across it. bool [T, N].
        discount_factor: Per env step, in [0, 1].
        gae_lambda: 0 is one-step advantages, 1 is returns minus values.

    Returns:
        float [T, N].

    Raises:
        ValueError: If the shapes differ.

    Source:
        Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation (2016), eq. 16.
    """
    _check_shapes(reward=reward, value=value, next_value=next_value, done=done)
    delta = reward + discount_factor * next_value - value
    decay = discount_factor * gae_lambda * (1 - done.astype(reward.dtype))
    advantage = np.empty_like(delta)
    following = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        following = delta[t] + decay[t] * following
        advantage[t] = following
    return advantage


def gae_of_tensors(
    reward: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    done: torch.Tensor,
    discount_factor: float,
    gae_lambda: float,
) -> torch.Tensor:
    """Computes ``gae`` on the device of tensors of the same shapes, without waiting for it."""
    _check_shapes(reward=reward, value=value, next_value=next_value, done=done)
    delta = reward + discount_factor * next_value - value
    decay = discount_factor * gae_lambda * (~done).to(reward.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        following = torch.add(delta[t], decay[t] * following, out=advantage[t])
    return advantage
