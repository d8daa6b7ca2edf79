"""Advantages and V-trace targets equal sums that are written out step by step, for any terminations and truncations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data.returns import gae, gae_of_tensors, vtrace


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """A [T, N] block of rewards and values with random terminations and truncations."""
    steps, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.2, 0.6]))
    terminated = rng.random((steps, envs)) < share
    truncated = ~terminated & (rng.random((steps, envs)) < share)
    done = terminated | truncated
    value, following = rng.normal(size=(2, steps, envs))
    following[:-1] = np.where(
        done[:-1], following[:-1], value[1:]
    )  # the next obs of a row is that of the row below
    return {
        'reward': rng.normal(size=(steps, envs)),
        'value': value,
        'next_value': np.where(terminated, 0.0, following),
        'done': done,
        'ratio': np.exp(rng.normal(size=(steps, envs))),
    }


FACTORS = st.sampled_from([0.0, 0.5, 0.97, 1.0])


@settings(max_examples=20, deadline=None)
@given(blocks(), FACTORS, FACTORS)
def test_gae_equals_the_sum_of_td_errors_within_the_episode(
    block: dict[str, np.ndarray], gamma: float, lambda_: float
) -> None:
    reward, value, next_value, done = (block[k] for k in ('reward', 'value', 'next_value', 'done'))
    got = gae(reward, value, next_value, done, gamma, lambda_)
    delta = reward + gamma * next_value - value
    for t, n in np.ndindex(reward.shape):
        total = 0.0
        for s in range(t, len(reward)):
            total += (gamma * lambda_) ** (s - t) * delta[s, n]
            if done[s, n]:
                break
        assert got[t, n] == pytest.approx(total)


def test_advantages_of_several_agents_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, 5, 2, 3))
    done = rng.random((5, 2)) < 0.3
    got = gae(reward, value, next_value, done, 0.9, 0.8)
    for agent in range(3):
        each = (column[:, :, agent] for column in (reward, value, next_value))
        np.testing.assert_allclose(got[:, :, agent], gae(*each, done, 0.9, 0.8))


def tensors(block: dict[str, np.ndarray]) -> list[torch.Tensor]:
    """Returns the columns of a block in the order of the arguments, and marks the end of its rows."""
    ends = block['done'].copy()
    ends[-1] = True
    names = ('reward', 'value', 'next_value', 'done', 'ratio')
    return [torch.as_tensor((block | {'done': ends})[name]) for name in names]


@settings(max_examples=30, deadline=None)
@given(blocks(), FACTORS, FACTORS, st.sampled_from([(1.0, 1.0), (2.0, 0.7), (np.inf, np.inf)]))
def test_vtrace_equals_the_equations_of_its_paper(
    block: dict[str, np.ndarray], gamma: float, lambda_: float, clips: tuple[float, float]
) -> None:
    """Eq. 1: v_s = V(x_s) + sum over t of gamma^(t - s) c_s ... c_(t - 1) delta_t, within the episode."""
    reward, value, next_value, done, ratio = (
        block[k] for k in ('reward', 'value', 'next_value', 'done', 'ratio')
    )
    rho, c = np.minimum(clips[0], ratio), lambda_ * np.minimum(clips[1], ratio)
    got = vtrace(*tensors(block), gamma, lambda_, clips)
    target = np.empty_like(value)
    for s, n in np.ndindex(reward.shape):
        target[s, n] = value[s, n]
        for t in range(s, len(reward)):
            trace = np.prod(c[s:t, n])
            target[s, n] += (
                gamma ** (t - s) * trace * rho[t, n] * (reward[t, n] + gamma * next_value[t, n] - value[t, n])
            )
            if done[t, n]:
                break
    for s, n in np.ndindex(reward.shape):
        is_last = done[s, n] or s == len(reward) - 1
        following = next_value[s, n] if is_last else target[s + 1, n]
        advantage = reward[s, n] + gamma * following - value[s, n]
        assert got.advantage[s, n].item() == pytest.approx(advantage)
    np.testing.assert_allclose(got.return_.numpy(), target, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(blocks(), FACTORS)
def test_vtrace_of_fresh_data_is_the_n_step_return(block: dict[str, np.ndarray], gamma: float) -> None:
    """Eq. 2: the discounted rewards until the end of the episode or of the rows, and the value behind it."""
    fresh = block | {'ratio': np.ones_like(block['ratio'])}
    return_, advantage = vtrace(*tensors(fresh), gamma)
    reward, value, next_value, done = (block[k] for k in ('reward', 'value', 'next_value', 'done'))
    for s, n in np.ndindex(reward.shape):
        total, weight = 0.0, 1.0
        for t in range(s, len(reward)):
            total, weight = total + weight * reward[t, n], weight * gamma
            if done[t, n] or t == len(reward) - 1:
                total += weight * next_value[t, n]
                break
        assert return_[s, n].item() == pytest.approx(total)
        assert advantage[s, n].item() == pytest.approx(total - value[s, n])


@settings(max_examples=10, deadline=None)
@given(blocks(), FACTORS, FACTORS)
def test_vtrace_of_fresh_data_values_states_as_gae_does(
    block: dict[str, np.ndarray], gamma: float, lambda_: float
) -> None:
    *columns, ratio = tensors(block)
    return_ = vtrace(*columns, torch.ones_like(ratio), gamma, lambda_).return_
    wanted = columns[1] + gae_of_tensors(*columns, gamma, lambda_)
    torch.testing.assert_close(return_, wanted, rtol=1e-9, atol=1e-12)


def test_other_shapes_are_refused() -> None:
    ones = np.ones((3, 2))
    with raises(ValueError):
        gae(ones, ones, ones[:1], ones > 2, 0.9, 0.9)
