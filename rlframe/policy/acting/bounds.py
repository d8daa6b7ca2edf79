"""Bounds of continuous actions: networks act in [-1, 1], envs between their own bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.action_bounds import check_action_bounds
from rlframe.data.timestep import Array, EnvSpec
from rlframe.errors import IncompatibleError


class ActionBounds:
    """Maps actions between [-1, 1] and the bounds of an env's Box, dimension by dimension.

    Args:
        spec: Spaces of the env; the action space is a Box.

    Raises:
        IncompatibleError: If a dimension has no finite bounds, or no lower one below the upper one; it is named.
    """

    def __init__(self, spec: EnvSpec) -> None:
        check_action_bounds(spec)
        space: Any = spec.action_space
        self._low, self._dtype = space.low, space.dtype
        with np.errstate(over='ignore'):
            self._half = (space.high - space.low) / 2
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

    def to_env(self, action: Array) -> Array:
        """Maps actions in [-1, 1], [n, ...], to the env's bounds; values outside are clipped."""
        scaled = self._low + (np.clip(action, -1.0, 1.0) + 1.0) * self._half
        return scaled.astype(self._dtype, copy=False)

    def to_unit(self, action: Array) -> Array:
        """Maps actions within the env's bounds, [n, ...], to float32 in [-1, 1]."""
        width = np.where(self._half > 0, self._half, 1.0)
        return ((action - self._low) / width - 1.0).astype(np.float32)
