"""Demonstrations, read from recorded data, and the newest rows of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.dataset import DATA_FORMS, check_source, open_data
from rlframe.data.sources import DataSource
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.errors import ConfigError
from rlframe.policy.parts.actions import ActionMap
from rlframe.reward_model.base import RewardModelConfig
from rlframe.utils.field import option
from rlframe.utils.schema import COLUMN, COUNT, check_state

READ = 'obs', 'action', 'next_obs', 'reward', 'terminated', 'truncated', 'episode'
"""Columns of demonstrations that reward models may read."""
RECORD = 'rlframe collect RUN --steps 10000 --out expert.npz records the policy of a run.'
"""How demonstrations are made."""


class DemonstrationConfig(RewardModelConfig):
    """Options of reward models that learn from recorded data."""

    data: Any = option(None, doc=f'demonstrations: {DATA_FORMS}', reaches='code')


def demonstrations(data: Any, spec: EnvSpec, where: str = 'data') -> Batch:
    """Returns recorded rows in order of time, with the actions that a network would have meant; see ``recorded_rows``."""
    rows = recorded_rows(data, spec, where)
    return rows.replace(action=ActionMap(spec).from_env(np.asarray(rows['action'])))


def recorded_rows(data: Any, spec: EnvSpec, where: str = 'data') -> Batch:
    """Returns recorded rows in order of time.

    Args:
        data: What ``open_data`` accepts.
        spec: Spec of the env.
        where: The option that names the data, for errors.

    Raises:
        ConfigError: If there are none, they are of another env, or they come row by row.
    """
    if data is None:
        message = 'a reward model that learns from demonstrations has none'
        raise ConfigError(message, where=where, got=None, expected=DATA_FORMS, remedy=RECORD)
    source = open_data(data, where)
    check_source(source, spec, where)
    rows = Batch.cat([_columns(each, where) for each in getattr(source, 'sources', [source])])
    source.close()
    return rows


def _columns(source: DataSource, where: str) -> Batch:
    """Returns the columns of one of the data that demonstrations consist of."""
    rows = getattr(source, 'rows', None)
    if not isinstance(rows, Batch):
        raise ConfigError(
            'demonstrations lie in memory, in order of time',
            where=where,
            got=type(source).__name__,
            expected='columns, such as those of an .npz file',
        )
    return Batch({name: rows[name] for name in READ if name in rows})


class Recent:
    """The newest rows of the agent, at most ``size``; each row has one place of a ring."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: dict[str, Array] = {}
        self._count = 0  # rows so far, also those that are gone

    def __len__(self) -> int:
        return min(self._count, self._size)

    def push(self, rows: Mapping[str, Array]) -> None:
        """Keeps columns of rows, [M, ...], in place of the oldest ones."""
        length = len(next(iter(rows.values())))
        kept = min(length, self._size)
        place = (self._count + np.arange(length - kept, length)) % self._size
        for name, column in rows.items():
            if name not in self._columns:
                self._columns[name] = np.zeros((self._size, *column.shape[1:]), column.dtype)
            self._columns[name][place] = column[length - kept :]
        self._count += length

    def rows(self) -> Batch:
        """Returns all rows, in no particular order."""
        return self.at(np.arange(len(self)))

    def at(self, index: IntArray) -> Batch:
        """Returns the rows at some places, each below the length."""
        return Batch({name: column[index] for name, column in self._columns.items()})

    def state_dict(self) -> dict[str, Any]:
        """Returns the rows, by their places."""
        columns = {name: column[: len(self)].copy() for name, column in self._columns.items()}
        return {'count': self._count, 'columns': columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'count': COUNT, 'columns': COLUMN})
        self._columns = {}
        self._count = 0
        if state['columns']:
            self.push(state['columns'])
        self._count = state['count']
