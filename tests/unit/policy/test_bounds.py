"""Bounds of continuous actions."""

import numpy as np
import pytest
from gymnasium.spaces import Box

from rlframe.data.timestep import EnvSpec
from rlframe.errors import IncompatibleError
from rlframe.policy import create_policy
from rlframe.policy.parts.actions import ActionBounds


def bounds_of(low, high):
    space = Box(np.array(low, np.float32), np.array(high, np.float32))
    return ActionBounds(EnvSpec(Box(-1, 1, (2,)), space, name='Env'))


@pytest.mark.parametrize('high', [np.inf, np.finfo(np.float32).max])
def test_a_dimension_without_finite_bounds_is_named(high):
    low = -high
    with pytest.raises(IncompatibleError, match=r'action dimension \[1\].*\n?.*RescaleAction'):
        bounds_of([-1, low], [1, high])


NAN = float('nan')
NO_CHOICE = {
    'equal': ([-1, 1], [1, 1], [1], 'low[1] = 1, action_space.high[1] = 1'),
    'swapped': ([-1, 2], [1, 1], [1], 'low[1] = 2, action_space.high[1] = 1'),
    'low is NaN': ([NAN, 0], [1, 1], [0], 'low[0] = nan, action_space.high[0] = 1'),
    'high is NaN': ([-1, 0], [1, NAN], [1], 'low[1] = 0, action_space.high[1] = nan'),
    'two': ([1, 1], [1, 1], [0], 'low[0] = 1, action_space.high[0] = 1'),
}
KINDS = ['sac', 'ppo', 'bc']


@pytest.mark.parametrize(
    ('kind', 'case'), [*(('sac', case) for case in NO_CHOICE), *((kind, 'two') for kind in KINDS[1:])]
)
def test_bounds_that_leave_no_choice_are_refused_by_every_policy(kind: str, case: str) -> None:
    low, high, at, values = NO_CHOICE[case]
    space = Box(-1, 1, (2,), np.float32)
    space.low, space.high = np.array(low, np.float32), np.array(high, np.float32)  # Gymnasium refuses some
    with pytest.raises(IncompatibleError) as caught:
        create_policy({'type': kind, 'cuda': False}, EnvSpec(Box(-1, 1, (2,)), space, name='Still'))
    assert caught.value.where == 'env.env_id'
    more = ', and 1 more' if case == 'two' else ''
    for word in (f'action dimension {at} of Still contain no value{more};', values, 'env.wrappers'):
        assert word in str(caught.value)


@pytest.mark.parametrize('kind', KINDS)
def test_actions_without_numbers_are_refused_by_every_policy(kind: str) -> None:
    spec = EnvSpec(Box(-1, 1, (2,), np.float32), Box(-1, 1, (0,), np.float32), name='Still')
    with pytest.raises(IncompatibleError, match='actions of Still hold no numbers'):
        create_policy({'type': kind, 'cuda': False}, spec)


def test_integers_that_float64_cannot_tell_apart_are_refused_by_name():
    space = Box(2**63, 2**63 + 1, (1,), np.uint64)
    with pytest.raises(IncompatibleError, match=r'dimension \[0\] of Env apart: .*begin at 0'):
        ActionBounds(EnvSpec(Box(-1, 1, (2,)), space, name='Env'))
