"""Observations as a user has them, of one env or of several, made into the rows that a policy takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.observation import BAD_OBS, bounds_of, pack_rows, plain_parts
from rlframe.data.timestep import Array, BoolArray
from rlframe.errors import NonFiniteError, ObservationError
from rlframe.utils.arithmetic import is_finite
from rlframe.utils.struct_array import field_path, leaves, struct_dtype

Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""Type and shape of one observation as an array."""


def to_rows(obs: Any, kind: Kind) -> tuple[Array, bool]:
    """Packs the observation of an env, or a vector env.

    Args:
        obs: An observation, or n of them: with a leading axis (in each part, if it has parts), or as a list.
        kind: Describes an observation as an array.

    Returns:
        Rows [n, ...], and whether it was a single observation, n = 1.

    Raises:
        ObservationError: If it has another structure, shape or type; with both.
        NonFiniteError: If it contains a NaN or an infinity.
    """
    dtype, shape = kind
    if dtype.names is not None and isinstance(obs, list):
        return _from_list(obs, dtype), False
    count = _count(obs, kind)
    rows = np.zeros((1 if count is None else count, *shape), dtype)
    _fill(obs, rows, shape, count, 'obs')
    return rows, count is None


def _from_list(obs: list[Any], dtype: np.dtype[Any]) -> Array:
    rows = np.zeros(len(obs), dtype)
    try:
        pack_rows(obs, rows)
    except BAD_OBS as error:
        raise ObservationError(
            f'a list is taken for {len(obs)} observations, and one of them cannot be: {error}', where='obs'
        ) from error
    for path, leaf in leaves(rows, 'obs'):
        _check_finite(leaf, path)
    return rows


def _count(obs: Any, kind: Kind) -> int | None:
    """Returns the number of observations, from the first part; None for a single one without a leading axis."""
    dtype, shape = kind
    path = 'obs'
    while dtype.names is not None:
        name = dtype.names[0]
        obs, path = _part(obs, dtype.names, 0, path), field_path(path, name)
        dtype, shape = dtype[name].base, dtype[name].shape
    got = _array(obs, path).shape
    if got == shape:
        return None
    if got[1:] == shape and len(got) == len(shape) + 1:
        return int(got[0])
    raise _misshapen(obs, path, dtype, shape)


def _fill(obs: Any, rows: Array, shape: tuple[int, ...], count: int | None, path: str) -> None:
    """Writes observations, or the column of one part of them, to rows [n, ...]."""
    names = rows.dtype.names
    if names is not None:
        for i, name in enumerate(names):
            part = _part(obs, names, i, path)
            _fill(part, rows[name], rows.dtype[name].shape, count, field_path(path, name))
        return
    values = _array(obs, path)
    if values.shape != (shape if count is None else (count, *shape)):
        raise _misshapen(obs, path, rows.dtype, shape, count)
    if not _fits(values, rows.dtype):
        raise ObservationError(
            'the numbers are of another type', where=path, got=str(values.dtype), expected=str(rows.dtype)
        )
    _check_finite(values, path)
    np.copyto(rows, values, 'unsafe')


def _part(obs: Any, names: tuple[str, ...], i: int, path: str) -> Any:
    """Returns one of the parts that an observation should have."""
    has_names = isinstance(obs, Mapping) or getattr(getattr(obs, 'dtype', None), 'names', None) is not None
    if has_names:
        given = tuple(obs) if isinstance(obs, Mapping) else obs.dtype.names
        if set(given) == set(names):
            return obs[names[i]]
        got: Any = list(given)
    elif isinstance(obs, tuple):
        if len(obs) == len(names):
            return obs[i]
        got = f'a tuple of {len(obs)}'
    else:
        got = f'{type(obs).__name__} of shape {np.shape(obs)}'
    raise ObservationError('it has other parts', where=path, got=got, expected=f'the parts {list(names)}')


def _array(value: Any, path: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ObservationError(f'it is not an array of numbers: {error}', where=path) from error
    if array.dtype.kind not in 'biuf':
        raise ObservationError(
            'it is not an array of numbers', where=path, got=_described(value), expected='numbers'
        )
    return array


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether numbers can be converted without becoming others: whole ones that are in range, and any to real ones."""
    if np.can_cast(values.dtype, dtype, 'safe') or dtype.kind == 'f':
        return True
    if values.dtype.kind == 'f' or dtype.kind == 'b':
        return False
    limits = np.iinfo(dtype)
    return bool((values >= limits.min).all() and (values <= limits.max).all())


def _check_finite(values: Array, path: str) -> None:
    if not is_finite(values) and not np.isfinite(values).all():
        raise NonFiniteError(f'{path}: it contains NaN or infinity: {values}')


def _misshapen(
    obs: Any, path: str, dtype: np.dtype[Any], shape: tuple[int, ...], count: int | None = -1
) -> ObservationError:
    one, many = f'{shape}', f'({", ".join(map(str, ("n", *shape)))}{"" if shape else ","})'
    expected = f'{dtype} of shape {one} for one env, {many} for n envs'
    if count != -1:
        there = 'one env' if count is None else f'{count} envs'
        expected = (
            f'{dtype} of shape {one if count is None else (count, *shape)}, as the other parts are of {there}'
        )
    return ObservationError('it has a different shape', where=path, got=_described(obs), expected=expected)


def _described(value: Any) -> str:
    array = np.asarray(value)
    return f'{array.dtype} of shape {array.shape}'


class Bounds:
    """The smallest and the largest value of each number in an observation.

    Args:
        space: An observation space.
    """

    def __init__(self, space: Any) -> None:
        self._parts = [bounds_of(part) for _, part in plain_parts(space)]

    def check(self, rows: Array) -> None:
        """Checks observations [n, ...].

        Raises:
            ObservationError: If one is outside the space; the part and its first such number are named.
        """
        for (path, values), (low, high) in zip(leaves(rows, 'obs'), self._parts, strict=True):
            bad = (values < low) | (values > high)
            if bad.any():
                at = tuple(np.argwhere(bad)[0])
                low, high = (np.broadcast_to(bound, values.shape)[at] for bound in (low, high))
                raise ObservationError(
                    "it is outside the policy's space",
                    where=path,
                    got=values[at].item(),
                    expected=f'a number in [{low:g}, {high:g}]',
                    remedy='Scale observations as in training. Does the env itself exceed its bounds? Clip them.',
                )


class FrameStacks:
    """The last frames of each env's running episode, the newest last; an episode begins with its first frame only.

    Args:
        kind: Describes a stack as an array: the first axis of each part is that of the frames.
    """

    _stacks: Array
    _is_new: BoolArray

    def __init__(self, kind: Kind) -> None:
        dtype, shape = kind
        self.frame: Kind = (_frame_dtype(dtype), shape if dtype.names else shape[1:])
        """Array type and shape of one frame."""
        self._dtype, self._shape = kind
        self.reset()

    def push(self, frames: Array) -> Array:
        """Takes the newest frames [n, ...] of n envs and returns a copy of their stacks."""
        missing = len(frames) - len(self._stacks)
        if missing > 0:
            new = np.zeros((missing, *self._stacks.shape[1:]), self._stacks.dtype)
            self._stacks = np.concatenate([self._stacks, new])
            self._is_new = np.concatenate([self._is_new, np.ones(missing, np.bool_)])
        new_rows = self._is_new[: len(frames)]
        for (_, stack), (_, frame) in zip(leaves(self._stacks[: len(frames)]), leaves(frames), strict=True):
            stack[:, :-1] = stack[:, 1:]
            stack[:, -1] = frame
            stack[new_rows] = frame[new_rows][:, None]
        self._is_new[: len(frames)] = False
        return self._stacks[: len(frames)].copy()

    def reset(self, env_id: Array | None = None) -> None:
        """Lets the episodes of these envs, or of all, begin anew."""
        if env_id is None:
            self._stacks = np.zeros((0, *self._shape), self._dtype)
            self._is_new = np.zeros(0, np.bool_)
        else:
            self._is_new[env_id[env_id < len(self._is_new)]] = True


def _frame_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.names is None:
        return dtype
    fields = {}
    for name in dtype.names:
        part = dtype[name]
        fields[name] = (_frame_dtype(part.base), part.shape[1:])
    return struct_dtype(fields)
