"""Bounds of the actions of a Box: networks act in [-1, 1], envs between their own bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.action_bounds import check_action_bounds
from rlframe.data.timestep import Array, EnvSpec
from rlframe.errors import IncompatibleError


class ActionBounds:
    """Maps actions between [-1, 1] and the bounds of an env's Box, dimension by dimension.

    Every action that it returns lies in the Box: rounding does not lead beyond the upper bound, and actions for a Box of
    integers or bools are rounded to the nearest one.

    Args:
        spec: Spaces of the env; the action space is a Box.

    Raises:
        IncompatibleError: If a dimension has no finite bounds, or no lower one below the upper one, or only integers that
            float64 cannot tell apart; it is named.
    """

    def __init__(self, spec: EnvSpec) -> None:
        check_action_bounds(spec)
        space: Any = spec.action_space
        self._low, self._high = float_bounds(space)
        self._dtype, self._is_integer = space.dtype, space.dtype.kind != 'f'
        with np.errstate(over='ignore'):
            self._half = (self._high - self._low) / 2
        unbounded = np.argwhere(~np.isfinite(self._half))
        if len(unbounded):
            at = tuple(unbounded[0].tolist())
            raise IncompatibleError(
                f'{spec.name} has no finite bounds for action dimension {list(at)}:'
                f' from {space.low[at]} to {space.high[at]}',
                where='policy.type',
                remedy='Give its action space finite bounds, in the env or by a wrapper that changes the action_space'
                ' (env.wrappers); gymnasium.wrappers.RescaleAction needs finite bounds itself.',
            )

        blurred = np.argwhere(~(self._low < self._high))
        if len(blurred):
            at = tuple(blurred[0].tolist())
            raise IncompatibleError(
                f'float64 cannot tell the actions of dimension {list(at)} of {spec.name} apart:'
                f' integers from {space.low[at]} to {space.high[at]}',
                where='policy.type',
                remedy='Let the action space begin at 0, in the env or by a wrapper (env.wrappers).',
            )

    def to_env(self, action: Array) -> Array:
        """Maps actions in [-1, 1], [n, ...], to the env's bounds; values outside are clipped."""
        scaled = np.minimum(self._low + (np.clip(action, -1.0, 1.0) + 1.0) * self._half, self._high)
        return (np.rint(scaled) if self._is_integer else scaled).astype(self._dtype, copy=False)

    def to_unit(self, action: Array) -> Array:
        """Maps actions within the env's bounds, [n, ...], to float32 in [-1, 1]."""
        width = np.where(self._half > 0, self._half, 1.0)
        return ((action - self._low) / width - 1.0).astype(np.float32)


def float_bounds(space: Any) -> tuple[Array, Array]:
    """Returns the bounds of a Box in a type to compute with: of integers, the nearest float64 numbers within them."""
    if space.dtype.kind == 'f':
        dtype = np.result_type(space.dtype, np.float32)
        return space.low.astype(dtype, copy=False), space.high.astype(dtype, copy=False)
    within = []
    for bound, inwards in ((space.low, np.inf), (space.high, -np.inf)):
        near = bound.astype(np.float64)
        beyond = [
            (int(a) > int(b)) == (inwards < 0) and int(a) != int(b)
            for a, b in zip(near.flat, bound.flat, strict=True)
        ]
        within.append(np.where(np.reshape(beyond, near.shape), np.nextafter(near, inwards), near))
    return within[0], within[1]
