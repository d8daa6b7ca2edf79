"""Advantages and returns: pure functions on ``[T, N]`` arrays, one row per env step.

``done`` marks the last step of an episode, terminated or truncated. ``next_value`` is the value of the observation
*after* the step, and is 0 if the episode terminated: at a truncation it is the value of the true last observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
        reward: Reward of each step. float [T, N], or [T, N, A] if each of A agents has one.
        value: Value of the obs before each step. float, of the same shape.
        next_value: Value of the obs after each step; 0 where terminated. float, of the same shape.
        done: True where the episode ended at that step: nothing flows back across it. bool [T, N], or of the same shape.
        discount_factor: Per env step, in [0, 1].
        gae_lambda: 0 is one-step advantages, 1 is returns minus values.

    Returns:
        float, of the same shape.

    Raises:
        ValueError: If the shapes differ.

    Source:
        Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation (2016), eq. 16.
    """
    _check_shapes(reward=reward, value=value, next_value=next_value)
    _check_shapes(reward=reward[..., 0] if reward.ndim > done.ndim else reward, done=done)
    done = done.reshape(*done.shape, *[1] * (reward.ndim - done.ndim))
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
    return _sums_from_behind(delta, discount_factor * gae_lambda * (~done).to(reward.dtype))


def _sums_from_behind(delta: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """Returns x with x[t] = delta[t] + decay[t] * x[t + 1], and nothing behind the last row, [T, N]."""
    total = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        following = torch.add(delta[t], decay[t] * following, out=total[t])
    return total


class VTrace(NamedTuple):
    """Targets of an actor-critic for data of older weights."""

    return_: torch.Tensor
    """V-trace target of the value of the obs before each step, [T, N]."""
    advantage: torch.Tensor
    """Advantage of each step's action, not weighted by its ratio, [T, N]."""


def vtrace(
    reward: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    done: torch.Tensor,
    ratio: torch.Tensor,
    discount_factor: float,
    lambda_: float = 1.0,
    clips: tuple[float, float] = (1.0, 1.0),
) -> VTrace:
    """Computes V-trace targets: n-step returns, corrected for the weights that acted.

    Args:
        reward: Reward of each step. float [T, N].
        value: Value of the obs before each step, by the newest weights. float [T, N].
        next_value: Value of the obs after each step, likewise; 0 where terminated. float [T, N].
        done: True where the row below is not the next step: nothing flows back across it. bool [T, N].
        ratio: Probability of each action by the newest weights, divided by that by the weights that acted. float [T, N].
        discount_factor: Per env step, in [0, 1].
        lambda_: Weight of later steps, as in GAE: 0 bootstraps after one step.
        clips: Rho-bar, the largest weight of a TD error, which decides whose values are learned; c-bar, the largest weight
            of the step below, which decides how far corrections flow back.

    Raises:
        ValueError: If the shapes differ.

    Source:
        Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures (2018),
        eq. 1 and section 4.2; lambda: remark 2.
    """
    _check_shapes(reward=reward, value=value, next_value=next_value, done=done, ratio=ratio)
    clip_rho, clip_c = clips
    goes_on = (~done).to(reward.dtype)
    delta = ratio.clamp(max=clip_rho) * (reward + discount_factor * next_value - value)
    excess = _sums_from_behind(delta, discount_factor * lambda_ * ratio.clamp(max=clip_c) * goes_on)
    next_return = next_value + goes_on * torch.cat([excess[1:], torch.zeros_like(excess[:1])])
    return VTrace(value + excess, reward + discount_factor * next_return - value)
