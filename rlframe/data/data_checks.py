"""Checks that recorded data are those of an env, with the row and the column of the first mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from rlframe.data.observation import MASK_PATH, bounds_of, check_mask_values, obs_dtype, plain_parts
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec
from rlframe.errors import ConfigError
from rlframe.utils.serialize import leaves

ENDS = 'terminated', 'truncated'
"""Columns that say where episodes end."""


def columns_text(columns: Any) -> str:
    """Returns columns in words: names, types and shapes."""
    found = []
    for name, column in columns.items():
        kind = 'fields' if column.dtype.names else column.dtype.name
        found.append(f'{name} {kind}{list(column.shape[1:]) or ""}')
    return ', '.join(found)


def first_bad(bad: BoolArray) -> int:
    """Returns the number of the first row that is bad."""
    return int(bad.argmax())


def check_spec(columns: Any, own: EnvSpec | None, spec: EnvSpec, where: str) -> None:
    """Checks that the spaces of data are those of an env.

    Args:
        columns: The data.
        own: Spec of the env that they are from; None: unknown.
        spec: Spec of the env.
        where: The option that names the data, for the error.

    Raises:
        ConfigError: With both, and the nearest way to read them, if there is one.
    """
    dtype, shape = obs_dtype(spec.observation_space)
    action_shape = tuple(spec.action_space.shape or ())
    obs, action = columns['obs'], columns['action']
    is_column = action.ndim == 2 if hasattr(action, 'ndim') else len(action.shape) == 2
    fits_action = action.shape[1:] == action_shape or (
        is_column and action.shape[1] == 1 and not action_shape
    )
    has_parts = set(obs.dtype.names or ()) == set(dtype.names or ())
    fits_obs = obs.shape[1:] == shape and has_parts
    if fits_obs and fits_action:
        return
    wrong = 'column action a row has another shape' if fits_obs else 'column obs a row has another shape'
    if not has_parts:
        wrong = 'column obs a row has other parts'
    of = f' of {own.name}' if own is not None and own.name else ''
    spaces = f' (obs {own.observation_space!r}, action {own.action_space!r})' if own is not None else ''
    raise ConfigError(
        f'the data{of} do not fit {spec.name}: in the {wrong}',
        where=where,
        got=f'{columns_text({"obs": obs, "action": action})}{spaces}',
        expected=f'obs {spec.observation_space!r}, action {spec.action_space!r}',
        remedy=_obs_reading(obs.shape[1:], shape)
        if not fits_obs
        else _action_reading(action.shape[1:], action_shape, action.dtype.kind, spec),
    )


def _obs_reading(got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Returns how observations could be read as an env has them; nothing if there is no way."""
    if got == expected:
        return ''
    if len(got) == len(expected) + 1 and got[1:] == expected and got[0] > 1:
        return f'Are these stacks of frames? env.frame_stack={got[0]}.'
    if got and len(expected) == len(got) + 1 and expected[1:] == got:
        return 'These are no stacks of frames: leave env.frame_stack out.'
    if len(got) == 3 and sorted(got) == sorted(expected):
        axes = 'last' if got[-1] == min(got) else 'first'
        return f'The channels of images are the {axes} axis of the data: np.moveaxis moves them.'
    return _reshaped('obs', got, expected)


def _action_reading(got: tuple[int, ...], expected: tuple[int, ...], kind: str, spec: EnvSpec) -> str:
    """Returns how actions could be read as an env has them; nothing if there is no way."""
    if not expected and got == (int(getattr(spec.action_space, 'n', -1)),):
        return 'Are actions one-hot? np.argmax(action, 1) are their numbers.'
    is_real = np.dtype(spec.action_space.dtype).kind == 'f'
    return _reshaped('action', got, expected) if is_real == (kind == 'f') else ''


def _reshaped(name: str, got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if np.prod(got, dtype=np.int64) == np.prod(expected, dtype=np.int64):
        return f'{name}.reshape({(-1, *expected)}) has the shape of the env.'
    return ''


def check_batch(batch: Batch, spec: EnvSpec, where: str, rows: Array | None = None) -> None:
    """Checks that a batch of data matches the spaces of an env.

    Args:
        batch: The data.
        spec: Spaces of the env.
        where: The option that names the data, for the error.
        rows: Numbers of the rows in the data, [n]; by default those in the batch.

    Raises:
        ConfigError: If there are no observations or no actions, they have another shape, an observation is not finite
            or has fractions where the env gives whole numbers, these or pixels are out of bounds, an end mark is not 0
            or 1, or an action is not in the action space; the first such row is named.
        ActionMaskError: If an action mask has other values than 0 and 1.
    """
    obs_shape = obs_dtype(spec.observation_space)[1]
    declared = {'obs': obs_shape, 'action': tuple(spec.action_space.shape or ())}
    if 'next_obs' in batch:
        declared['next_obs'] = obs_shape
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
    for name in ('obs', 'next_obs', 'reward'):
        if name in batch:
            _check_finite(np.asarray(batch[name]), name, numbers, where)
    for name in ENDS:
        if name in batch:
            _check_flags(np.asarray(batch[name]), name, numbers, where)
    _check_units(np.asarray(batch['obs']), spec, numbers, where)
    _check_actions(np.asarray(batch['action']), spec, numbers, where)


def check_marks(flags: BoolArray | None, columns: Iterable[str], spec: EnvSpec, where: str) -> None:
    """Checks that data say where episodes end, if they have rewards.

    Args:
        flags: Whether each row ends an episode, [n]; None: the data do not say it.
        columns: Names of the columns.
        spec: Spec of the env.
        where: The option that names the data, for the error.

    Raises:
        ConfigError: If they do not, or not once in more rows than an episode can have.
    """
    if 'reward' not in columns:
        return
    longest = spec.max_episode_steps or np.inf
    if flags is None or (not flags.any() and len(flags) > longest):
        raise ConfigError(
            'the data have no end marks: a policy would learn that episodes never end, and go on from one to the next',
            where=where,
            got=sorted(columns)
            if flags is None
            else f'terminated and truncated, which are never true in {len(flags):,} rows',
            expected="the columns 'terminated' and 'truncated'",
        )


def _check_finite(column: Array, of: str, rows: Array, where: str) -> None:
    for name, values in leaves(column, of):
        if name == MASK_PATH:
            check_mask_values(values, f'{where}: the data')
        if values.dtype.kind != 'f':
            continue
        bad = np.asarray(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        if bad.any():
            first = first_bad(bad)
            raise ConfigError(
                f'row {rows[first]} of the data: {name} is {values[first]}{_more(bad)}',
                where=where,
                remedy='Remove such rows.',
            )


def no_flags(column: Array) -> BoolArray:
    """Returns which rows of a column of end marks are neither 0 nor 1, [n]."""
    return np.zeros(len(column), np.bool_) if column.dtype.kind == 'b' else (column != 0) & (column != 1)


def _check_flags(column: Array, name: str, rows: Array, where: str) -> None:
    bad = no_flags(column)
    if bad.any():
        first = first_bad(bad)
        raise ConfigError(
            f'row {rows[first]} of the data: {name} is {column[first]}{_more(bad)}',
            where=where,
            expected='0 or 1',
        )


def _check_units(obs: Array, spec: EnvSpec, rows: Array, where: str) -> None:
    """Checks that whole numbers are whole, and that they and pixels are within the bounds of their space."""
    parts = dict(plain_parts(spec.observation_space))
    for name, values in leaves(obs, 'obs'):
        space = parts.get(name)
        if space is None:
            continue
        for bad, wrong, way in _faults(values, space):
            if bad.any():
                low, high = bounds_of(space)
                raise ConfigError(
                    f'row {rows[first_bad(bad)]} of the data: {name} {wrong}{_more(bad)}, and {spec.name} gives'
                    f' {space.dtype} in [{np.min(low)}, {np.max(high)}]',
                    where=where,
                    got=f'{values.dtype} in [{values.min():g}, {values.max():g}]',
                    expected=str(space.dtype),
                    remedy=f'Record observations as the env gives them{way}.',
                )


def _faults(values: Array, space: Any) -> Iterator[tuple[BoolArray, str, str]]:
    """Yields, for each kind of mistake, which rows of observations have it, [n], its name, and a remedy."""
    is_whole = np.dtype(space.dtype).kind != 'f'
    if is_whole and values.dtype.kind == 'f':
        way = ': multiply pixels in [0, 1] by the largest value'
        yield _rows(values != np.floor(values)), 'has fractions', way
    if is_whole or len(space.shape or ()) == 3:
        way = '' if is_whole else ': divide pixels by the largest value'
        yield _beyond(values, space), 'is out of bounds', way


def _beyond(values: Array, space: Any) -> BoolArray:
    """Returns which rows have values out of the bounds of a space, [n]."""
    low, high = bounds_of(space)
    if values.min() >= np.max(low) and values.max() <= np.min(high):
        return np.zeros(len(values), np.bool_)
    return _rows((values < low) | (values > high))


def _rows(bad: Any) -> BoolArray:
    """Returns which rows have a bad value, [n]."""
    return np.asarray(np.reshape(bad, (len(bad), -1)).any(axis=1))


def _check_actions(action: Array, spec: EnvSpec, rows: Array, where: str) -> None:
    bad = ~actions_in(action, spec.action_space)
    if bad.any():
        first = first_bad(bad)
        raise ConfigError(
            f'row {rows[first]} of the data: an action is not in the action space of {spec.name}{_more(bad)}',
            where=where,
            got=action[first].tolist(),
            expected=repr(spec.action_space),
        )


def actions_in(action: Array, space: Any) -> BoolArray:
    """Returns a mask of the actions, [n, ...], that a space contains, [n]."""
    if action.dtype.kind not in 'biuf':
        return np.zeros(len(action), np.bool_)
    if hasattr(space, 'parts'):  # a Composite
        found: BoolArray = space.inside(action)
        return found
    low, high = bounds_of(space)
    is_real = np.dtype(space.dtype).kind == 'f'
    values = action.astype(space.dtype) if is_real else action
    inside = (values >= low) & (values <= high) & (is_real | (values == np.floor(values)))
    return np.asarray(np.reshape(inside, (len(action), -1)).all(axis=1))


def _more(bad: BoolArray) -> str:
    count = int(bad.sum()) - 1
    return f' (and {count} more)' if count else ''
