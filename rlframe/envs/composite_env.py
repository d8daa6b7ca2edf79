"""Envs whose actions have parts, as envs that take rows of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from rlframe.data.composite import Composite
from rlframe.data.timestep import Array

if TYPE_CHECKING:
    Wrapper = gymnasium.ActionWrapper[Any, Any, Any]
    VectorWrapper = gymnasium.vector.VectorActionWrapper
else:
    Wrapper, VectorWrapper = gymnasium.ActionWrapper, gymnasium.vector.VectorActionWrapper


class CompositeEnv(Wrapper):
    """Takes rows, float64 [K], as the actions of an env with a ``Dict`` or a ``Tuple`` of actions.

    Args:
        env: The env.
        space: The rows that stand for its actions.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], space: Composite) -> None:
        super().__init__(env)
        self.action_space = self._rows = space

    def action(self, action: Array) -> Any:
        return self._rows.of_rows(np.asarray(action))


class CompositeVectorEnv(VectorWrapper):
    """Does the same for the actions of all envs of a vector env, [N, K].

    Args:
        env: The vector env.
        space: The rows that stand for the actions of one of its envs.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any], space: Composite) -> None:
        super().__init__(env)
        self.single_action_space = self._rows = space
        shape = (env.num_envs, sum(space.sizes))
        self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float64)  # type: ignore[arg-type]  # of any type

    def actions(self, actions: Array) -> Any:
        return self._rows.of_rows(np.asarray(actions))
