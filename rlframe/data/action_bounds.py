"""Checks that the bounds of continuous actions are valid for every policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import EnvSpec
from rlframe.errors import IncompatibleError


def check_action_bounds(spec: EnvSpec) -> None:
    """Checks that each dimension of continuous actions has more than one possible value.

    Raises:
        IncompatibleError: If there is no dimension, or a lower bound is not below the upper one, or one of them is NaN; the first such dimension
            is named.
    """
    space: Any = spec.action_space
    if type(space).__name__ != 'Box':
        return
    if not space.low.size:
        raise IncompatibleError(
            f'the actions of {spec.name} hold no numbers',
            where='env.env_id',
            got=repr(space),
            expected='a Box of at least one number',
            remedy='Correct the action space of the env.',
        )
    bad = np.argwhere(~(space.low < space.high))  # NaN is not below anything
    if not len(bad):
        return
    at = tuple(bad[0].tolist())
    index, more = list(at) if at else '', f', and {len(bad) - 1} more' if len(bad) > 1 else ''
    low, high = float(space.low[at]), float(space.high[at])
    raise IncompatibleError(
        f'the bounds of action dimension {list(at)} of {spec.name} contain no value{more}',
        where='env.env_id',
        got=f'action_space.low{index} = {low:g}, action_space.high{index} = {high:g}',
        expected='low < high',
        remedy='Correct the action space of the env, or remove the dimension with a wrapper (env.wrappers).',
    )
