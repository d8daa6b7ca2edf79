"""Observations in every form that envs and vector envs give them become rows; others are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rlframe.data.observation import obs_dtype, pack
from rlframe.errors import NonFiniteError, ObservationError
from rlframe.export.function import Bounds, FrameStacks, to_rows
from rlframe.utils.serialize import leaves

SPACES = {
    'box': spaces.Box(-9, 9, (2, 3), np.float32),
    'image': spaces.Box(0, 255, (4, 4, 3), np.uint8),
    'discrete': spaces.Discrete(7, start=2),
    'binary': spaces.MultiBinary(3),
    'dict': spaces.Dict(
        a=spaces.Box(0, 9, (3,)), b=spaces.Dict(c=spaces.Discrete(3), d=spaces.MultiDiscrete([2, 3]))
    ),
    'tuple': spaces.Tuple((spaces.Box(0, 255, (2, 2), np.uint8), spaces.Tuple((spaces.Discrete(2),)))),
}


def assert_rows(rows: np.ndarray, space: Any, obs: list[Any]) -> None:
    wanted = np.stack([pack(space, one) for one in obs])
    assert (rows.shape, rows.dtype) == (wanted.shape, wanted.dtype)
    for (path, got), (_, expected) in zip(leaves(rows), leaves(wanted), strict=True):
        assert np.array_equal(got, expected), path


@pytest.mark.parametrize('name', SPACES)
def test_one_observation_a_batch_and_a_list_become_the_same_rows(name: str) -> None:
    space = SPACES[name]
    space.seed(0)
    obs = [space.sample() for _ in range(4)]
    for one in obs:
        rows, is_one = to_rows(one, obs_dtype(space))
        assert is_one
        assert_rows(rows, space, [one])
    columns = batch_space(space, 4)
    columns.seed(0)
    batch = columns.sample()
    rows, is_one = to_rows(batch, obs_dtype(space))
    assert not is_one
    assert_rows(rows, space, [_row(batch, i) for i in range(4)])
    rows, is_one = to_rows(obs, obs_dtype(space))
    assert not is_one
    assert_rows(rows, space, obs)
    Bounds(space).check(rows)


def _row(batch: Any, i: int) -> Any:
    if isinstance(batch, dict):
        return {name: _row(part, i) for name, part in batch.items()}
    return tuple(_row(part, i) for part in batch) if isinstance(batch, tuple) else batch[i]


@pytest.mark.parametrize(
    ('name', 'obs'),
    [
        ('box', np.zeros(3)),
        ('box', 'text'),
        ('box', [[1, 2], [3]]),
        ('image', np.zeros((4, 4, 3), np.float32)),
        ('discrete', 2.0),
        ('dict', {'a': np.zeros(3)}),
        ('dict', np.zeros(3)),
        ('dict', {'a': np.zeros(4), 'b': {'c': 0, 'd': [0, 0]}}),
        ('dict', {'a': np.zeros((2, 3)), 'b': {'c': [0, 1, 2], 'd': np.zeros((2, 2), int)}}),
        ('dict', [{'a': np.zeros(3)}]),
        ('tuple', (np.zeros((2, 2), np.uint8),)),
    ],
)
def test_what_is_not_of_the_space_is_refused_with_its_form(name: str, obs: Any) -> None:
    with pytest.raises(ObservationError, match=r"obs: it is not of the policy's space, .*; got .*one env"):
        to_rows(obs, obs_dtype(SPACES[name]))


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(NonFiniteError, match=r'obs: .*NaN or infinity'):
        to_rows(np.full((2, 3), bad), obs_dtype(SPACES['box']))
    obs = {'a': np.array([1, bad, 1]), 'b': {'c': 0, 'd': [0, 0]}}
    for form in (obs, [obs]):
        with pytest.raises(NonFiniteError, match=r"obs\['a'\]"):
            to_rows(form, obs_dtype(SPACES['dict']))


def test_stacks_begin_with_the_first_frame_of_an_episode_and_keep_envs_apart() -> None:
    space = spaces.Dict(a=spaces.Box(0, 99, (3, 1)), b=spaces.MultiDiscrete([99] * 3))
    stacks = FrameStacks(obs_dtype(space))

    def push(*values: int) -> list[Any]:
        frames, _ = to_rows([{'a': [value], 'b': value} for value in values], stacks.frame)
        rows = stacks.push(frames)
        assert rows['a'][..., 0].tolist() == rows['b'].tolist()
        return rows['b'].tolist()

    assert push(1, 11) == [[1, 1, 1], [11, 11, 11]]
    assert push(2, 12) == [[1, 1, 2], [11, 11, 12]]
    first = push(3, 13)
    assert first == [[1, 2, 3], [11, 12, 13]]
    stacks.reset(np.array([1]))
    assert push(4, 24) == [[2, 3, 4], [24, 24, 24]]
    stacks.reset()
    assert push(7) == [[7, 7, 7]]


OUTSIDE: dict[str, tuple[Any, str]] = {
    'box': ([[0, 0, 0], [0, 9.1, 0]], r'obs: .*9\.1.*\[-9, 9\]'),
    'discrete': (9, r'obs: .*9.*\[2, 8\]'),
    'binary': ([0, 1, 2], 'obs: '),
    'dict': ({'a': [1, 2, 3], 'b': {'c': 3, 'd': [0, 0]}}, r"obs\['b'\]\['c'\]"),
    'tuple': ((np.zeros((2, 2), np.uint8), (-1,)), r'obs\[1\]\[0\]'),
}


@pytest.mark.parametrize('name', OUTSIDE)
def test_observation_outside_the_space_is_refused_by_its_part(name: str) -> None:
    obs, words = OUTSIDE[name]
    rows, _ = to_rows(obs, obs_dtype(SPACES[name]))
    with pytest.raises(ObservationError, match=words):
        Bounds(SPACES[name]).check(rows)
