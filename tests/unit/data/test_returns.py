"""Advantages equal sums that are written out step by step, for any terminations and truncations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data.returns import gae


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """A [T, N] block of rewards and values with random terminations and truncations."""
    steps, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.2, 0.6]))
    terminated = rng.random((steps, envs)) < share
    truncated = ~terminated & (rng.random((steps, envs)) < share)
    return {
        'reward': rng.normal(size=(steps, envs)),
        'value': rng.normal(size=(steps, envs)),
        'next_value': np.where(terminated, 0.0, rng.normal(size=(steps, envs))),
        'done': terminated | truncated,
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


def test_other_shapes_are_refused() -> None:
    ones = np.ones((3, 2))
    with pytest.raises(ValueError, match='shapes must agree'):
        gae(ones, ones, ones[:1], ones > 2, 0.9, 0.9)
