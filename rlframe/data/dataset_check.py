"""Checks recorded data against the spaces of the env, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.observation import MASK_PATH, bounds_of, check_mask_values, obs_dtype, plain_parts
from rlframe.data.timestep import Array, BoolArray, EnvSpec
from rlframe.errors import ConfigError
from rlframe.utils.struct_array import leaves


def check_batch(batch: Batch, spec: EnvSpec, where: str, rows: Array | None = None) -> None:
    """Checks that a batch of data matches the spaces of an env.

    Args:
        batch: The data.
        spec: Spaces of the env.
        where: The option that names the data, for the error.
        rows: Numbers of the rows in the data, [n]; by default those in the batch.

    Raises:
        ConfigError: If there are no observations or no actions, they have another shape, an observation is not finite
            or has fractions where the env gives whole numbers, or an action is not in the action space; the first such
            row is named.
        ActionMaskError: If an action mask has other values than 0 and 1.
    """
    declared = {'obs': obs_dtype(spec.observation_space)[1], 'action': tuple(spec.action_space.shape or ())}
    for name, shape in declared.items():
        if name not in batch:
            raise ConfigError(
                f'the data have no column {name}',
                where=where,
                got=list(batch.keys()),
                expected="'obs' and 'action'",
            )
        if tuple(batch[name].shape[1:]) != shape:
            raise ConfigError(
                f'the data do not fit {spec.name}: in the column {name} a row has another shape',
                where=where,
                got=list(batch[name].shape[1:]),
                expected=str(list(shape)),
            )
    numbers = np.arange(len(batch)) if rows is None else rows
    _check_finite(np.asarray(batch['obs']), numbers, where)
    _check_whole(np.asarray(batch['obs']), spec, numbers, where)
    _check_actions(np.asarray(batch['action']), spec, numbers, where)


def _check_finite(obs: Array, rows: Array, where: str) -> None:
    for name, values in leaves(obs, 'obs'):
        if name == MASK_PATH:
            check_mask_values(values, f'{where}: the data')
        if values.dtype.kind != 'f':
            continue
        bad = np.asarray(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        if bad.any():
            first = int(bad.argmax())
            raise ConfigError(
                f'row {rows[first]} of the data: {name} is {values[first]}{_more(bad)}',
                where=where,
                remedy='Remove such rows.',
            )


def _check_whole(obs: Array, spec: EnvSpec, rows: Array, where: str) -> None:
    parts = dict(plain_parts(spec.observation_space))
    for name, values in leaves(obs, 'obs'):
        space = parts.get(name)
        if values.dtype.kind != 'f' or space is None or np.dtype(space.dtype).kind == 'f':
            continue
        bad = (values != np.floor(values)).reshape(len(values), -1).any(axis=1)
        if bad.any():
            low, high = bounds_of(space)
            raise ConfigError(
                f'row {rows[int(bad.argmax())]} of the data: {name} has fractions{_more(bad)}, and {spec.name} gives'
                f' {space.dtype} in [{np.min(low)}, {np.max(high)}]',
                where=where,
                got=f'{values.dtype} in [{values.min():g}, {values.max():g}]',
                expected=str(space.dtype),
                remedy='Record observations as the env gives them: multiply pixels in [0, 1] by the largest value.',
            )


def _check_actions(action: Array, spec: EnvSpec, rows: Array, where: str) -> None:
    bad = ~_are_in(action, spec.action_space)
    if bad.any():
        first = int(bad.argmax())
        raise ConfigError(
            f'row {rows[first]} of the data: an action is not in the action space of {spec.name}{_more(bad)}',
            where=where,
            got=action[first].tolist(),
            expected=repr(spec.action_space),
        )


def _are_in(action: Array, space: Any) -> BoolArray:
    """Returns a mask of the actions, [n, ...], that a space contains, [n]."""
    kind = type(space).__name__
    if action.dtype.kind not in 'biuf':
        return np.zeros(len(action), np.bool_)
    if kind == 'Box':
        values = action.astype(space.dtype)
        inside = (values >= space.low) & (values <= space.high)
    elif kind in ('Discrete', 'MultiDiscrete', 'MultiBinary'):
        count = {'Discrete': 'n', 'MultiDiscrete': 'nvec'}.get(kind)
        low = getattr(space, 'start', 0)
        high = low + (getattr(space, count) if count else 2)
        inside = (action >= low) & (action < high) & (action == np.floor(action))
    else:
        return np.array([space.contains(one) for one in action], np.bool_)
    return np.asarray(np.reshape(inside, (len(action), -1)).all(axis=1))


def _more(bad: BoolArray) -> str:
    count = int(bad.sum()) - 1
    return f' (and {count} more)' if count else ''
