"""Actions with parts as rows: what is in the space, its masks, and what cannot be a row."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from gymnasium import spaces

from rlframe.data import EnvSpec
from rlframe.data.composite import Composite, bad_part, by_rows, mask_row
from rlframe.data.observation import check_action_bounds
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import EnvContractError, IncompatibleError
from rlframe.policy import create_policy

WHOLE = spaces.Dict(
    a=spaces.Discrete(3, start=5),
    b=spaces.Tuple(
        (spaces.Box(0, 255, (2,), np.uint8), spaces.MultiDiscrete([[2, 3], [1, 2]]), spaces.MultiBinary(2))
    ),
    c=spaces.Box(-1, 1, (), np.float32),
)
ROW = np.array([6, 0, 255, 1, 2, 0, 1, 1, 0, 0.5])


def test_rows_and_actions_are_turned_into_each_other_one_or_many() -> None:
    space: Any = by_rows(WHOLE)
    assert isinstance(space, Composite) and space.shape == (10,) and repr(space) == repr(WHOLE)
    action = space.of_rows(ROW)
    assert WHOLE.contains(action) and np.array_equal(space.row_of(action), ROW)
    many = space.of_rows(np.stack([ROW, ROW]))
    assert many['a'].tolist() == [6, 6] and many['b'][1].shape == (2, 2, 2) and many['c'].shape == (2,)
    space.seed(3)
    assert all(space.contains(space.sample()) for _ in range(20)) and space == by_rows(WHOLE)
    own = type('Own', (spaces.Dict,), {})({**WHOLE.spaces})
    spec = GymEnvFactory(dict(env_id=lambda: Odd(own))).spec
    assert isinstance(spec.action_space, Composite) and create_policy({'type': 'ppo', 'device': 'cpu'}, spec)


@pytest.mark.parametrize(
    ('at', 'value'), [(0, 8), (0, 5.5), (1, 256), (1, -1), (4, 3), (7, 2), (9, 1.5), (9, np.nan)]
)
def test_a_number_outside_its_part_is_outside_the_space(at: int, value: float) -> None:
    space: Any = by_rows(WHOLE)
    row = ROW.copy()
    row[at] = value
    assert space.inside(np.stack([ROW, row])).tolist() == [True, False] and not space.contains(row)


def test_masks_are_nested_as_the_space_is_and_none_allows_all() -> None:
    given = dict(a=np.int8([0, 1, 1]), b=(None, (([1, 0], [1, 1, 0]), ([1], [0, 1])), None), c=None)
    assert mask_row(WHOLE, given).tolist() == [0, 1, 1, 1, 0, 1, 1, 0, 1, 0, 1]
    assert mask_row(WHOLE, dict(a=None, b=None, c=None)).tolist() == [1] * 11
    with raises(ValueError):
        mask_row(WHOLE, {**given, 'b': (None, None, np.ones(2))})


class Odd(gymnasium.Env):
    """Has the actions and gives the mask that it is made with."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, action: Any, mask: Any = None) -> None:
        self.action_space, self._mask = action, mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {} if self._mask is None else {'action_mask': self._mask}


def test_a_mask_that_is_nested_otherwise_is_an_error_of_the_env() -> None:
    factory = GymEnvFactory(dict(env_id=lambda: Odd(WHOLE, {'a': [1, 1, 1]}), action_mask=True))
    with raises(EnvContractError):
        factory.create().reset()


@pytest.mark.parametrize(
    'whole',
    [
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.Text(3),))),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict()),
        spaces.Dict({1: spaces.Discrete(2)}),
        spaces.Tuple(()),
    ],
)
def test_a_part_that_no_row_holds_is_named(whole: Any) -> None:
    assert bad_part(whole) and by_rows(whole) is whole
    spec = GymEnvFactory(dict(env_id=lambda: Odd(whole))).spec
    with raises(IncompatibleError):
        create_policy({'type': 'ppo', 'device': 'cpu'}, spec)


def test_integers_that_float64_does_not_hold_are_refused() -> None:
    space = by_rows(spaces.Dict(a=spaces.Discrete(4, start=2**60), b=spaces.Box(-1, 1, (1,))))
    with raises(IncompatibleError):
        check_action_bounds(EnvSpec(Odd.observation_space, space, name='Odd'))
