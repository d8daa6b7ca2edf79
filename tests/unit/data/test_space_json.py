"""Spaces come back from JSON as they were."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from gymnasium import spaces

from rlframe.data.space_json import space_from_json, space_to_json
from rlframe.errors import IncompatibleError
from rlframe.run.checkpoint_tree import Encoder, decode, to_json

SPACES = {
    'box of many bounds': spaces.Box(np.float32([0.1, -np.inf]), np.float32([np.inf, 1e-30])),
    'box of doubles': spaces.Box(0.1, 0.2, (2, 1), np.float64),
    'box without axes': spaces.Box(0.0, 1.0, (), np.float32),
    'image': spaces.Box(0, 255, (4, 5, 3), np.uint8),
    'whole numbers': spaces.Box(np.array([-(2**62), 3]), np.array([2**62 + 1, 4]), dtype=np.int64),
    'discrete from elsewhere': spaces.Discrete(5, start=-3),
    'small discrete': spaces.Discrete(5, dtype=np.int32),
    'multi discrete': spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
    'multi binary with axes': spaces.MultiBinary([2, 3]),
    'dict': spaces.Dict([('z', spaces.Discrete(2)), ('a', spaces.Box(0, 1, (2,)))], sort_keys=False),
    'tuple': spaces.Tuple((spaces.Discrete(2), spaces.Dict(b=spaces.Tuple((spaces.MultiBinary(2),))))),
}


@pytest.mark.parametrize('name', SPACES)
def test_a_space_comes_back_equal(name: str) -> None:
    space = SPACES[name]
    encoder = Encoder()
    data = to_json(encoder.tree(space_to_json(space)))
    assert encoder.arrays == {}
    again = space_from_json(decode(json.loads(data), {}))
    assert again == space and again.dtype == space.dtype and again.shape == space.shape
    if isinstance(space, spaces.Dict):
        assert list(again.spaces) == list(space.spaces)


def test_other_spaces_are_refused() -> None:
    graph: gymnasium.Space = spaces.Graph(spaces.Discrete(2), None)
    with raises(IncompatibleError):
        space_to_json(spaces.Dict(a=graph))
    with raises(ValueError):
        space_from_json({'type': 'Graph'})
