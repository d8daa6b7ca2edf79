"""Bounds of continuous actions."""

import numpy as np
import pytest
from error_texts import raises
from gymnasium.spaces import Box

from rlframe.data.timestep import EnvSpec
from rlframe.errors import IncompatibleError
from rlframe.policy import create_policy
from rlframe.policy.parts.actions import ActionBounds

DTYPES = ['float16', 'float32', 'float64', 'int32', 'uint32', 'int64', 'uint64']


@pytest.mark.parametrize('side', ['low', 'high', 'both'])
@pytest.mark.parametrize('dtype', DTYPES)
def test_an_action_without_a_bound_is_refused_by_its_dimension(dtype: str, side: str) -> None:
    if dtype[0] == 'u' and side == 'low':
        pytest.skip('0 is a bound')
    limits = np.finfo(dtype) if dtype[0] == 'f' else np.iinfo(dtype)
    low = limits.min if side != 'high' else 0
    high = limits.max if side != 'low' else 1
    space = Box(np.array([0, low], dtype), np.array([1, high], dtype), dtype=np.dtype(dtype).type)
    spec = EnvSpec(Box(-1, 1, (2,)), space, name='Env')
    for kind in KINDS:
        with raises(IncompatibleError):
            create_policy({'type': kind, 'cuda': False}, spec)


def test_the_largest_number_of_mujoco_is_no_bound() -> None:
    for low, high in ((-1e10, 1e10), (0, 1e11)):
        space = Box(np.array([-1, low]), np.array([1, high]), dtype=np.float64)
        with raises(IncompatibleError):
            ActionBounds(EnvSpec(Box(-1, 1, (2,)), space, name='Env'))


@pytest.mark.parametrize('dtype', ['int8', 'uint8', 'int16', 'uint16'])
def test_all_values_of_a_small_type_may_be_meant(dtype: str) -> None:
    limits = np.iinfo(dtype)
    space = Box(limits.min, limits.max, (2,), np.dtype(dtype).type)
    ActionBounds(EnvSpec(Box(-1, 1, (2,)), space, name='Env'))


KINDS = ['sac', 'ppo', 'bc']
NAN = float('nan')
NO_CHOICE = {
    'equal': ([-1, 1], [1, 1]),
    'swapped': ([-1, 2], [1, 1]),
    'low is NaN': ([NAN, 0], [1, 1]),
    'high is NaN': ([-1, 0], [1, NAN]),
    'two': ([1, 1], [1, 1]),
}


@pytest.mark.parametrize(
    ('kind', 'case'), [*(('sac', case) for case in NO_CHOICE), *((kind, 'two') for kind in KINDS[1:])]
)
def test_bounds_that_leave_no_choice_are_refused_by_every_policy(kind: str, case: str) -> None:
    low, high = NO_CHOICE[case]
    space = Box(-1, 1, (2,), np.float32)
    space.low, space.high = np.array(low, np.float32), np.array(high, np.float32)  # Gymnasium refuses some
    with raises(IncompatibleError) as caught:
        create_policy({'type': kind, 'cuda': False}, EnvSpec(Box(-1, 1, (2,)), space, name='Still'))
    assert caught.value.where == 'env.env_id'


@pytest.mark.parametrize('kind', KINDS)
def test_actions_without_numbers_are_refused_by_every_policy(kind: str) -> None:
    spec = EnvSpec(Box(-1, 1, (2,), np.float32), Box(-1, 1, (0,), np.float32), name='Still')
    with raises(IncompatibleError):
        create_policy({'type': kind, 'cuda': False}, spec)


def test_integers_that_float64_cannot_tell_apart_are_refused_by_name():
    space = Box(2**63, 2**63 + 1, (1,), np.uint64)
    with raises(IncompatibleError):
        ActionBounds(EnvSpec(Box(-1, 1, (2,)), space, name='Env'))
