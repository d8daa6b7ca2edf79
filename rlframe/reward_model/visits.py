"""Visits of states: numbers that tell states apart, and how often each came in a running episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.utils.schema import array, check_state, dict_of

TABLE = array('iu', (2, None))
"""Schema of saved visits."""
Visits = dict[int, int]
"""Codes of states to numbers of visits."""


class EpisodeVisits:
    """Counts the visits of each env's running episode."""

    def __init__(self) -> None:
        self._episodes: dict[int, Visits] = {}

    def count(self, code: IntArray, rows: Batch) -> IntArray:
        """Counts the states that rows led to, by their codes [M], and returns the number of visits of each so far, [M]."""
        found = np.empty(len(code), np.int64)
        marks = zip(code.tolist(), rows['env_id'].tolist(), rows['episode_step'].tolist(), strict=True)
        for row, (state, env, step) in enumerate(marks):
            if step == 0 or env not in self._episodes:
                self._episodes[env] = {}
            found[row] = visit(self._episodes[env], state)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Returns the visits of each env, as arrays [2, n]."""
        return {str(env): table_of(visits) for env, visits in self._episodes.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, dict_of(TABLE))
        self._episodes = {int(env): visits_of(table) for env, table in state.items()}


def visit(visits: Visits, code: int) -> int:
    """Counts a visit, and returns how many there were."""
    visits[code] = visits.get(code, 0) + 1
    return visits[code]


def table_of(visits: Visits) -> IntArray:
    """Returns visits as an array [2, n]."""
    return np.array([list(visits.keys()), list(visits.values())], np.int64).reshape(2, -1)


def visits_of(table: IntArray) -> Visits:
    """Returns the visits in an array [2, n]."""
    return dict(zip(*table.tolist(), strict=True))


def codes_of(columns: list[Array], cell: float | None = None) -> IntArray:
    """Returns a number for each row of columns [M, ...], int64 [M]; equal rows have equal numbers.

    Source:
        Dietzfelbinger, Universal Hashing and k-wise Independent Random Variables via Integer Arithmetic without Primes (1996).
    """
    code = np.zeros(len(columns[0]), np.uint64)
    draw = np.random.default_rng(0)
    for column in flat_columns(columns):
        if column.dtype.kind == 'f' and cell is not None:
            column = np.floor(column / cell).astype(np.int64)
        if column.dtype.kind == 'f':
            column = column.astype(np.float64).view(np.uint64)
        values = column.reshape(len(column), -1).astype(np.uint64)
        code += values @ draw.integers(1, 2**64, values.shape[1], np.uint64)
    return code.view(np.int64)


def flat_columns(columns: list[Array]) -> list[Array]:
    """Returns columns without fields: each field of a structured one is a column of its own."""
    found: list[Array] = []
    for column in columns:
        names = column.dtype.names
        found += [column] if names is None else flat_columns([column[name] for name in names])
    return [np.ascontiguousarray(column) for column in found]
