"""Links between the steps of one trajectory in a ring, derived from the pushed rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data import Array, Batch, BoolArray, IntArray
from rlframe.utils.schema import array, check_state

NONE = -1
"""Marks a missing row, in place of its number."""


class Trajectories:
    """Links each row of a ring to the rows before and after it in its trajectory, however trajectories are interleaved.

    Row numbers are those of a ``Ring``. An overwritten row is no predecessor, as it is older than ``first``; a
    successor is younger than its predecessor and so always exists.

    Args:
        capacity: Slots of the ring.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._before = np.full(capacity, NONE)  # number of the row before, by slot
        self._after = np.full(capacity, NONE)
        self._running: dict[int, int] = {}  # env to the number of the last row of its running trajectory

    def last_row(self, env_id: int) -> int:
        """Returns the number of the last row of an env's running trajectory, ``NONE`` if a new one is to begin."""
        return self._running.get(env_id, NONE)

    def append(self, row: int, env_id: IntArray, begins: BoolArray, ends: BoolArray) -> None:
        """Takes in new rows.

        Args:
            row: Number of the first one.
            env_id: Env whose trajectory each row continues, [n]; in time order per env.
            begins: True for rows that start a trajectory, [n].
            ends: True for rows that end a trajectory, [n].
        """
        order = np.argsort(env_id, kind='stable')
        env, begun, ended, number = env_id[order], begins[order], ends[order], row + order
        is_same = env[1:] == env[:-1]
        before = np.full(len(env), NONE)
        before[1:] = np.where(is_same & ~ended[:-1], number[:-1], NONE)
        heads = [0, *(np.flatnonzero(~is_same) + 1).tolist()]
        for head, stop in zip(heads, [*heads[1:], len(env)], strict=True):
            before[head] = self._running.pop(int(env[head]), NONE)
            if not ended[stop - 1]:
                self._running[int(env[head])] = int(number[stop - 1])
        before[begun] = NONE
        self._link(number, before, row + len(env) - self._capacity)

    def _link(self, number: IntArray, before: IntArray, first: int) -> None:
        """Writes the links of those of the rows that stay, which are not older than ``first``."""
        number, before = number[number >= first], before[number >= first]
        self._before[number % self._capacity] = before
        self._after[number % self._capacity] = NONE
        linked = before >= max(first, 0)
        self._after[before[linked] % self._capacity] = number[linked]

    def around(self, row: IntArray, back: int, ahead: int, first: int) -> IntArray:
        """Returns the rows that surround others in their trajectories.

        Args:
            row: Row numbers, [n].
            back: How many rows before each.
            ahead: How many rows after each.
            first: Number of the oldest row that is present.

        Returns:
            Row numbers in time order, ``NONE`` for missing rows, [n, back + 1 + ahead].
        """
        rows = np.full((len(row), back + 1 + ahead), NONE)
        rows[:, back] = row
        for column in range(back, 0, -1):
            here = rows[:, column]
            before = self._before[here % self._capacity]
            rows[:, column - 1] = np.where((here != NONE) & (before >= first), before, NONE)
        for column in range(back, back + ahead):
            here = rows[:, column]
            rows[:, column + 1] = np.where(here != NONE, self._after[here % self._capacity], NONE)
        return rows

    def nbytes(self) -> int:
        """Returns the bytes that are allocated."""
        return self._before.nbytes + self._after.nbytes

    def state_dict(self, number: IntArray) -> dict[str, Any]:
        """Returns the data of the rows with these numbers, all that are present, oldest first."""
        running = np.array(list(self._running.items()), np.int64).reshape(-1, 2)
        return {'before': self._before[number % self._capacity], 'running': running}

    def load_state_dict(self, state: Mapping[str, Any], number: IntArray) -> None:
        """Restores the data of these rows."""
        check_state(state, {'running': array('iu', (None, 2)), 'before': array('iu', number.shape)})
        self._running = {int(env): int(row) for env, row in state['running']}
        if len(number):
            self._link(number, np.array(state['before'], np.int64), int(number[0]))


def done_of(rows: Batch) -> BoolArray:
    """Returns the episode ends, bool [n], from the columns ``terminated`` and ``truncated``, or ``done``.

    Raises:
        ValueError: If these columns are missing, or rows are not single steps.
    """
    names = [name for name in ('terminated', 'truncated', 'done') if name in rows]
    if not names:
        raise ValueError(
            f'no column says where episodes end: terminated and truncated, or done. Columns: {list(rows.keys())}'
        )
    columns: list[Array] = [np.asarray(rows[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1:
            raise ValueError(
                f'rows must be single env steps; column {name!r} has the shape {list(column.shape[1:])} a row'
            )
    done: BoolArray = np.logical_or.reduce(columns).astype(bool)
    return done
