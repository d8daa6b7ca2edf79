"""What a recurrent policy remembers of the episodes that it acts in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import FloatArray, IntArray


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
        self._states[slice(None) if env_id is None else env_id[env_id < len(self._states)]] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all states."""
        return {'states': self._states.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        self._states = np.array(state['states'], np.float32)
