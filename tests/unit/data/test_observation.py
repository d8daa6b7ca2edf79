"""Observations with parts become one structured array, and come back from wherever such arrays are put."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.config import parse_value
from rlframe.data import Batch
from rlframe.data.observation import fields_of, obs_dtype, pack, pack_into, pack_rows, zero_obs
from rlframe.envs.gym_env import _wrap
from rlframe.errors import IncompatibleError
from rlframe.run.checkpoint_tree import Encoder, decode
from rlframe.utils.serialize import leaves

SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
BOXES = st.builds(
    lambda shape, dtype: spaces.Box(0, 1 if dtype == 'bool' else 100, shape, np.dtype(dtype)),
    SHAPES,
    st.sampled_from(['bool', 'uint8', 'int16', 'float16', 'int32', 'float32', 'float64']),
)
PLAIN = st.one_of(
    BOXES,
    st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-3, 3)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
)
NAMES = st.text('abcdé_ 01', min_size=1, max_size=3)


def nested(parts: Any) -> Any:
    return st.one_of(
        st.dictionaries(NAMES, parts, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
    )


STRUCTURED = nested(st.recursive(PLAIN, nested, max_leaves=4))


def assert_same(space: gymnasium.Space, obs: Any, packed: Any) -> None:
    """Makes sure that each part of an observation is where it belongs."""
    parts = fields_of(space)
    if not parts:
        np.testing.assert_array_equal(packed, obs, strict=isinstance(obs, np.ndarray))
    for i, (name, part) in enumerate(parts.items()):
        assert_same(part, obs[i] if isinstance(obs, tuple) else obs[name], packed[name])


def sampled(space: gymnasium.Space, count: int) -> tuple[list[Any], Any]:
    """Returns observations, and the same as an array."""
    space.seed(0)
    observations = [space.sample() for _ in range(count)]
    rows = zero_obs(space, count)
    pack_rows(observations, rows)
    return observations, rows


def assert_equal(one: Any, other: Any) -> None:
    assert one.dtype == other.dtype and one.shape == other.shape
    for (_, values), (_, others) in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(values, others)


@settings(max_examples=15, deadline=None)
@given(space=STRUCTURED)
def test_every_part_is_found_again_and_can_be_wrapped_as_a_tensor(space: gymnasium.Space) -> None:
    observations, rows = sampled(space, 3)
    for i, obs in enumerate(observations):
        assert_same(space, obs, rows[i])
        assert_equal(np.asarray(pack(space, obs)), np.asarray(rows[i]))
    batched = gymnasium.vector.utils.concatenate(
        space, observations, gymnasium.vector.utils.create_empty_array(space, 3)
    )
    again = zero_obs(space, 3)
    pack_into(batched, again)
    assert_equal(again, rows)
    for _, values in leaves(rows):
        wrapped = torch.from_numpy(values)
        np.testing.assert_array_equal(wrapped.numpy(), values)
        assert wrapped.data_ptr() == values.ctypes.data or values.size == 0


def test_structured_arrays_come_back_from_checkpoints() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (3,), np.float16), b=spaces.Tuple((spaces.Discrete(3),)))
    rows, encoder = sampled(space, 4)[1], Encoder()
    assert_equal(decode(encoder.tree(rows), encoder.arrays), rows)


def test_a_batch_moves_fields_to_a_device_as_nested_columns() -> None:
    space = spaces.Dict(a=spaces.Box(0, 1, (3,)), b=spaces.Tuple((spaces.Discrete(3),)))
    _, rows = sampled(space, 4)
    moved = Batch(obs=rows, reward=np.ones(4)).to('cpu')
    assert moved['obs']['b']['0'].dtype is torch.int64 and moved['obs']['a'].shape == (4, 3)
    assert Batch.from_rows([{'obs': row} for row in rows])['obs'].dtype == rows.dtype


@pytest.mark.parametrize(
    'space',
    [
        spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict({}),
    ],
)
def test_spaces_that_are_no_arrays_are_refused_by_name(space: gymnasium.Space) -> None:
    with raises(IncompatibleError):
        obs_dtype(space)


WRONG: list[Any] = [
    {'a': 0},
    {'a': 0, 'b': np.zeros(2, np.float32), 'c': 1},
    {'a': 0, 'b': np.zeros((1, 2), np.float32)},
    {'a': 0, 'b': np.float32(0)},
    {'a': 0.5, 'b': np.zeros(2, np.float32)},
    None,
]


@pytest.mark.parametrize('wrong', WRONG)
def test_what_is_not_of_the_space_is_not_packed(wrong: Any) -> None:
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (2,)))
    right = {'a': 1, 'b': np.zeros(2, np.float32)}
    pack(space, right)
    with pytest.raises((TypeError, ValueError, LookupError)):
        pack(space, wrong)
    with pytest.raises((TypeError, ValueError, LookupError)):
        pack_rows([right, wrong], zero_obs(space, 2))


def test_advice_about_a_space_is_followed_and_works() -> None:
    text, image = spaces.Text(8), spaces.Box(0, 255, (7, 7, 3), np.uint8)
    known = spaces.Dict({'mission': text, 'image': image, 'direction': spaces.Discrete(4)})
    for space in (known, text, spaces.OneOf((spaces.Discrete(2), image)), spaces.Dict({'mission': text})):
        with pytest.raises(IncompatibleError) as caught:
            obs_dtype(space)
        wrappers = re.search(r'env\.wrappers=(\[.*\])', str(caught.value))
        if wrappers is None:
            assert space == spaces.Dict({'mission': text})
            continue
        env = fitted_env(space)
        for wrapper in parse_value(wrappers[1]):
            env = _wrap(env, wrapper)
        obs_dtype(env.observation_space)
        assert env.observation_space.contains(env.reset(seed=0)[0])


def fitted_env(space: gymnasium.Space) -> gymnasium.Env:
    class Any_(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, **kwargs: Any) -> Any:
            return self.observation_space.sample(), {}

    return Any_()


def test_space_without_numbers_is_refused_with_a_remedy_that_works() -> None:
    empty = spaces.Box(0, 1, (3, 0))
    with raises(IncompatibleError):
        obs_dtype(empty)
    whole = spaces.Dict(empty=empty, full=spaces.Box(0, 1, (2,)))
    with raises(IncompatibleError):
        obs_dtype(whole)
