"""ActionMap: actions as a network means them, and as an env takes them."""

from __future__ import annotations

import numpy as np

from rlframe.data.timestep import Array, EnvSpec
from rlframe.policy.acting.bounds import ActionBounds


class ActionMap:
    """Maps between the actions of a distribution and those of an env's action space.

    A network counts classes from 0 and means continuous actions in units of [-1, 1], [n, D]; an env has its own first
    class, bounds, shape and type.

    Args:
        spec: Spaces of the env.

    Raises:
        IncompatibleError: If a continuous action has no finite bounds.
    """

    def __init__(self, spec: EnvSpec) -> None:
        space = spec.action_space
        self.is_continuous = type(space).__name__ == 'Box'
        """Whether actions are real numbers, of which an env takes only those within its bounds."""
        self._shape: tuple[int, ...] = space.shape or ()
        self._dtype = np.dtype(space.dtype)
        self._start = np.asarray(getattr(space, 'start', 0), np.int64)
        self._has_start = not self.is_continuous and bool(self._start.any())
        self._bounds = ActionBounds(spec) if self.is_continuous else None

    def to_env(self, action: Array) -> Array:
        """Maps a network's actions [n, ...] to the env's, of its shape and type; values outside its bounds are clipped."""
        if len(self._shape) > 1 or (self.is_continuous and not self._shape):
            action = action.reshape(len(action), *self._shape)
        if self._bounds is not None:
            return self._bounds.to_env(action)
        action = action + self._start if self._has_start else action
        return action.astype(self._dtype, copy=False)

    def from_env(self, action: Array) -> Array:
        """Maps actions of the env [n, ...] to those that a network would have meant."""
        if self._bounds is not None:
            return self._bounds.to_unit(action).reshape(len(action), -1)
        action = action - self._start if self._has_start else action
        return action.reshape(len(action), -1) if self._shape else action
