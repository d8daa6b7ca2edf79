"""OpenMoves: accumulates the reward of a player's move until it is the player's turn again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, BoolArray, FloatArray, IntArray
from rlframe.utils.schema import array, check_state, dict_of, rows

Columns = dict[str, Array]


class OpenMoves:
    """Holds back one player's last move in each env, and sums its rewards until the player's next turn.

    A reward that comes before the first move is counted to that move, as there is no earlier one.

    Args:
        env_num: Number of envs, N.
    """

    def __init__(self, env_num: int) -> None:
        self._columns: Columns = {}  # [N, ...]
        self._reward = np.zeros(env_num)
        self._number = np.zeros(env_num, np.int64)  # moves that were closed in the running episode
        self.is_open = np.zeros(env_num, np.bool_)
        """Whether a move is pending in each env, [N]."""

    def __len__(self) -> int:
        return int(self.is_open.sum())

    def make(self, columns: Columns, env_id: IntArray) -> None:
        """Records the moves made in envs without a pending one.

        Args:
            columns: The data of each move, [n, ...].
            env_id: Env of each move, [n].
        """
        for name, column in columns.items():
            if name not in self._columns:
                self._columns[name] = np.zeros((len(self.is_open), *column.shape[1:]), column.dtype)
            self._columns[name][env_id] = column
        self.is_open[env_id] = True

    def pay(self, reward: FloatArray, env_id: IntArray) -> None:
        """Adds to the rewards of the players' last moves, [n]."""
        self._reward[env_id] += reward

    def close(self, env_id: IntArray) -> tuple[Columns, FloatArray, IntArray]:
        """Returns the pending moves of these envs, their rewards [n], and the number of each in its episode."""
        columns = {name: column[env_id] for name, column in self._columns.items()}
        reward, number = self._reward[env_id], self._number[env_id]
        self._number[env_id] += 1
        self._reward[env_id] = 0.0
        self.is_open[env_id] = False
        return columns, reward, number

    def forget(self, env_id: IntArray | BoolArray) -> int:
        """Resets these envs and returns the number of dropped moves."""
        dropped = int(self.is_open[env_id].sum())
        self._reward[env_id], self._number[env_id], self.is_open[env_id] = 0.0, 0, False
        return dropped

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all pending moves."""
        return {
            'reward': self._reward.copy(),
            'number': self._number.copy(),
            'is_open': self.is_open.copy(),
            'columns': {name: column.copy() for name, column in self._columns.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        env_num = len(self.is_open)
        each_env = {
            'reward': array('f', (env_num,)),
            'number': array('iu', (env_num,)),
            'is_open': array('b', (env_num,)),
        }
        check_state(state, {**each_env, 'columns': dict_of(rows(env_num))})
        self._reward, self._number = state['reward'].copy(), state['number'].copy()
        self.is_open = state['is_open'].copy()
        self._columns = {name: column.copy() for name, column in state['columns'].items()}
