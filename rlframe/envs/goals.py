"""Goals of an env: how a step is judged by another goal than its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.timestep import Array, BoolArray, FloatArray
from rlframe.errors import IncompatibleError

if TYPE_CHECKING:
    from rlframe.envs.base_env import EnvFactory

KEY = 'policy.other.replay_buffer.hindsight.strategy'
NEVER = 'BaseRobotEnv.compute_terminated'
"""The one of robots in Gymnasium-Robotics, of which no goal ends an episode."""
COMPARED = 8
"""Rows by which a function of rows is told from one of single goals."""
NOT_OF_ROWS = (TypeError, ValueError, IndexError, AssertionError)
"""What a function of single goals raises when it gets rows of them."""


class EnvGoals:
    """Judges steps by the ``compute_reward`` and the ``compute_terminated`` of an env, which is made when it is needed.

    They get rows of goals at once if they take them, else one goal after the other. A copy for another process makes its own
    env.

    Args:
        factory: Makes the env.
    """

    def __init__(self, factory: EnvFactory) -> None:
        self._factory = factory
        self._functions: dict[str, Callable[..., Any] | None] = {}
        self._takes_rows: dict[str, bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {'_factory': self._factory, '_functions': {}, '_takes_rows': {}}

    def find(self) -> EnvGoals:
        """Makes the env, and looks for its functions.

        Raises:
            IncompatibleError: If it has no ``compute_reward``.
        """
        env = self._factory.make_judge()
        env.reset(seed=0)
        for name in ('compute_reward', 'compute_terminated'):
            self._functions[name] = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
        if self._functions['compute_reward'] is None:
            raise IncompatibleError(
                f'{self._factory.spec.name} has no compute_reward(achieved_goal, desired_goal, info), which hindsight needs',
                where=KEY,
                remedy='Add that method to the env, or set the strategy to None.',
            )
        if getattr(self._functions['compute_terminated'], '__qualname__', '') == NEVER:
            self._functions['compute_terminated'] = None
        return self

    def reward(self, achieved: Array, desired: Array) -> FloatArray:
        """Returns the rewards of steps that reach some goals and are to reach others, [n]."""
        return np.asarray(self._judged('compute_reward', achieved, desired), np.float64)

    def terminated(self, achieved: Array, desired: Array) -> BoolArray | None:
        """Returns whether such steps end their episodes, [n]; None if that does not depend on goals."""
        found = self._judged('compute_terminated', achieved, desired)
        return None if found is None else np.asarray(found, np.bool_)

    def _judged(self, name: str, achieved: Array, desired: Array) -> Any:
        if not self._functions:
            self.find()
        function = self._functions[name]
        if function is None:
            return None
        if name not in self._takes_rows and len(achieved) > 1:
            self._takes_rows[name] = _takes_rows(function, achieved, desired)
        if self._takes_rows.get(name):
            return function(achieved, desired, {})
        return [function(*pair, {}) for pair in zip(achieved.copy(), desired.copy(), strict=True)]


def _takes_rows(function: Callable[..., Any], achieved: Array, desired: Array) -> bool:
    """Whether a function returns for rows of goals, [n, ...], what it returns for each of them."""
    try:
        together = np.asarray(function(achieved, desired, {}))
    except NOT_OF_ROWS:
        return False
    if together.shape != achieved.shape[:1]:
        return False
    pairs = zip(achieved[:COMPARED], desired[:COMPARED], strict=True)
    return np.allclose(together[:COMPARED], [function(*pair, {}) for pair in pairs])
