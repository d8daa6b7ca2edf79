"""Observations in every form that envs and vector envs give them become rows; others are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_texts import raises
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rlframe.data.composite import by_rows
from rlframe.data.observation import bounds_of, obs_dtype, pack, plain_parts
from rlframe.data.timestep import EnvSpec
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


BAD = [
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
    ('dict', {'a': np.zeros(3), 'b': {'c': 0, 'e': [0, 0]}}),
    ('tuple', (np.zeros((2, 2), np.uint8),)),
    ('tuple', (np.zeros((2, 2), np.uint8), (0.5,))),
]


@pytest.mark.parametrize(('name', 'obs'), BAD)
def test_what_is_not_of_the_space_is_refused_by_the_part_that_does_not_fit(name: str, obs: Any) -> None:
    with raises(ObservationError):
        to_rows(obs, obs_dtype(SPACES[name]))


@pytest.mark.parametrize('form', ['one', 'batch', 'list', 'array'])
def test_parts_that_training_left_out_are_dropped(form: str) -> None:
    inner = {'c': 1, 'd': [1, 2], 'more': 'text'}
    one = {'mission': 'go to the door', 'b': inner, 'a': np.arange(3)}
    two = {
        'mission': ['go', 'stay'],
        'b': {'c': [1] * 2, 'd': [[1, 2]] * 2},
        'a': np.tile(np.arange(3), (2, 1)),
    }
    kept = {'a': one['a'], 'b': {'c': 1, 'd': [1, 2]}}
    array = pack(spaces.Dict({'z': spaces.Discrete(3), **SPACES['dict'].spaces}), {**kept, 'z': 2})
    given = {'one': one, 'batch': two, 'list': [one, one], 'array': array}[form]
    rows, is_one = to_rows(given, obs_dtype(SPACES['dict']))
    assert is_one == (form in ('one', 'array'))
    assert_rows(rows, SPACES['dict'], [kept] * len(rows))


def test_a_mask_with_a_row_for_each_integer_is_flattened() -> None:
    space = spaces.Dict(a=spaces.Box(0, 9, (2,)), action_mask=spaces.MultiBinary(12))
    mask = np.arange(24).reshape(2, 3, 4) % 2
    for given, wanted in ((mask[0], mask[:1]), (mask, mask)):
        leading = given.shape[:-2]
        rows, _ = to_rows(
            {'a': np.ones((*leading, 2)), 'action_mask': given.astype(np.int8)}, obs_dtype(space)
        )
        np.testing.assert_array_equal(rows['action_mask'], wanted.reshape(-1, 12))


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad: float) -> None:
    with raises(NonFiniteError):
        to_rows(np.full((2, 3), bad), obs_dtype(SPACES['box']))
    obs = {'a': np.array([1, bad, 1]), 'b': {'c': 0, 'd': [0, 0]}}
    for form in (obs, [obs]):
        with raises(NonFiniteError):
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


LIMITS = ['float16', 'float16'], ['float32', 'float32'], ['float64', 'float64'], ['float32', 'float64']
"""Types whose limits envs write into a Box, and the type of that Box."""
NO_BOUND = {
    'both': ('-max', 'max', -np.inf, np.inf),
    'tiny': ('tiny', 'max', -np.inf, np.inf),
    'low': ('-max', 0, -np.inf, 0),
    'high': (0, 'max', 0, np.inf),
    'infinite': (-np.inf, 'max', -np.inf, np.inf),
}
"""Bounds that envs declare, and those that they mean."""


@pytest.mark.parametrize('case', NO_BOUND)
@pytest.mark.parametrize(('limit', 'dtype'), LIMITS)
def test_bounds_at_the_limits_of_a_float_type_are_no_bounds_in_any_space(
    limit: str, dtype: str, case: str
) -> None:
    largest, tiny = float(np.finfo(limit).max), float(np.finfo(limit).tiny)
    numbers = {'max': largest, '-max': -largest, 'tiny': tiny}
    *declared, low, high = NO_BOUND[case]
    ends = (np.full(2, numbers.get(end, end), dtype) for end in declared)
    box = spaces.Box(*ends, dtype=np.dtype(dtype).type)
    named = spaces.Dict([('b', box), ('a', spaces.Tuple((spaces.Discrete(2), box)))], sort_keys=False)
    spec, own = EnvSpec(named, by_rows(named)), EnvSpec(box, box)
    assert list(spec.observation_space) == ['b', 'a'], 'parts keep their order'
    for space in (spec.observation_space, spec.action_space.whole, own.action_space):
        for part in (part for _, part in plain_parts(space) if isinstance(part, spaces.Box)):
            assert [set(end.tolist()) for end in bounds_of(part)] == [{low}, {high}]
            assert (part.dtype, part.shape) == (box.dtype, box.shape)
    rows, _ = to_rows(np.array([0, -3 if low else 3], dtype), obs_dtype(box))
    Bounds(own.observation_space).check(rows)  # as `act` does


@pytest.mark.parametrize(
    'space', [*SPACES.values(), spaces.Box(1e-3, 6e4, (2,)), spaces.Box(-65504, 1, (2,))]
)
def test_other_spaces_stay_as_they_are(space: Any) -> None:
    assert EnvSpec(space, space).observation_space == space
