"""Converts observation and action spaces to plain JSON values and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import fields_of
from rlframe.data.timestep import Array
from rlframe.errors import IncompatibleError
from rlframe.utils.files import check_limit
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = LazyModule('gymnasium')

Space = Mapping[str, Any]
"""A space as plain values: its ``type`` and the arguments of its constructor."""


def space_to_json(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Returns a space as plain values, from which ``space_from_json`` creates an equal one.

    Bounds that are the same for all numbers of a Box are one number. Floats may be infinite.

    Raises:
        IncompatibleError: If the space is of a kind that observations and actions do not have.
    """
    kinds = gymnasium.spaces
    space = getattr(space, 'whole', space)  # a Composite is what its env declares
    if isinstance(space, kinds.Box):
        bounds = {name: _shortest(getattr(space, name)) for name in ('low', 'high')}
        return {'type': 'Box', 'shape': list(space.shape), 'dtype': space.dtype.name, **bounds}
    if isinstance(space, kinds.Discrete):
        return {'type': 'Discrete', 'n': int(space.n), 'start': int(space.start), 'dtype': space.dtype.name}
    if isinstance(space, kinds.MultiDiscrete):
        counts = {'nvec': space.nvec.tolist(), 'start': space.start.tolist()}
        return {'type': 'MultiDiscrete', **counts, 'dtype': space.dtype.name}
    if isinstance(space, kinds.MultiBinary):
        return {'type': 'MultiBinary', 'shape': list(space.shape)}
    if isinstance(space, kinds.Dict | kinds.Tuple):
        parts = {name: space_to_json(part) for name, part in fields_of(space).items()}
        return {'type': type(space).__name__, 'spaces': parts}
    raise IncompatibleError(
        f'the space {space!r} cannot be saved',
        got=type(space).__name__,
        expected='Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple',
    )


def space_from_json(data: Space) -> gymnasium.Space[Any]:
    """Returns the space that ``space_to_json`` encoded.

    Raises:
        LimitExceededError: If it has more numbers or choices than a limit allows; raised before anything is allocated.
        ValueError, KeyError, TypeError: If the values do not encode a space.
    """
    check_limit('SPACE_NUMBERS', _count(data), 'numbers or choices of the space')
    return _space(data)


def _count(data: Space) -> int:
    """Counts the numbers of a space; each choice counts."""
    kind = data['type']
    if kind in ('Box', 'MultiBinary'):
        return math.prod(_shape(data['shape']))
    if kind == 'Discrete':
        return _whole(data['n'])
    if kind == 'MultiDiscrete':
        return int(np.asarray(data['nvec'], np.float64).sum())
    return sum(_count(part) for part in data['spaces'].values()) if kind in ('Dict', 'Tuple') else 0


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f'a shape is a list of ints, not {value!r}')
    return tuple(map(_whole, value))


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f'a size is an int >= 0, not {value!r}')
    return value


def _space(data: Space) -> gymnasium.Space[Any]:
    kinds = gymnasium.spaces
    kind = data['type']
    if kind == 'Box':
        shape = _shape(data['shape'])
        dtype = np.dtype(data['dtype'])
        low, high = (np.broadcast_to(np.asarray(data[name], dtype), shape) for name in ('low', 'high'))
        return kinds.Box(low.copy(), high.copy(), dtype=dtype.type)
    if kind == 'Discrete':
        integer: Any = np.dtype(data['dtype']).type
        return kinds.Discrete(data['n'], start=data['start'], dtype=integer)
    if kind == 'MultiDiscrete':
        whole: Any = np.dtype(data['dtype'])
        nvec, start = (np.asarray(data[name], whole) for name in ('nvec', 'start'))
        return kinds.MultiDiscrete(nvec, dtype=whole.type, start=start)
    if kind == 'MultiBinary':
        shape = _shape(data['shape'])
        return kinds.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == 'Dict':
        parts = [(name, _space(part)) for name, part in data['spaces'].items()]
        return kinds.Dict(parts, sort_keys=False)
    if kind == 'Tuple':
        return kinds.Tuple(_space(part) for part in data['spaces'].values())
    raise ValueError(f'there is no space of type {kind!r}')


def _shortest(bound: Array) -> Any:
    """Returns bounds as one number if they are all the same, else as nested lists."""
    is_one = bound.size > 0 and bool((bound == bound.flat[0]).all())
    return bound.flat[0].item() if is_one else bound.tolist()
