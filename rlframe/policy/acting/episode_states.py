"""The recurrent states of a policy in the running episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import FloatArray, IntArray
from rlframe.utils.schema import array, check_state


class EpisodeStates:
    """Keeps one recurrent state for each env's running episode; an episode begins with zeros.

    Args:
        shape: Shape of a state.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._states: FloatArray = np.zeros((0, *shape), np.float32)

    def get(self, env_id: IntArray) -> FloatArray:
        """Returns a copy of the states of these envs, float32 [n, ...]."""
        missing = int(env_id.max(initial=-1)) + 1 - len(self._states)
        if missing > 0:
            new = np.zeros((missing, *self._states.shape[1:]), np.float32)
            self._states = np.concatenate([self._states, new])
        return self._states[env_id]

    def set(self, env_id: IntArray, states: FloatArray) -> None:
        """Replaces the states of these envs, of all of which ``get`` was asked before."""
        self._states[env_id] = states

    def reset(self, env_id: IntArray | None = None) -> None:
        """Lets these envs, or all, begin an episode."""
        known: Any = slice(None)
        if env_id is not None:
            env_id = np.asarray(env_id)
            known = env_id[env_id < len(self._states)]
        self._states[known] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all states."""
        return {'states': self._states.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'states': array('f', (None, *self._states.shape[1:]))})
        self._states = np.array(state['states'], np.float32)
