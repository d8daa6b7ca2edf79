"""Recorded episodes: what follows a row in its episode."""

from __future__ import annotations

import numpy as np

from rlframe.data.sources import DataSource, RowSource
from rlframe.data.timestep import Batch, BoolArray
from rlframe.errors import ConfigError


def ordered_columns(source: DataSource) -> Batch:
    """Returns the columns of data whose rows are in order of time, episode after episode.

    Raises:
        ConfigError: If they are rows or batches that come one by one.
    """
    columns = getattr(source, 'rows', None)
    if not isinstance(columns, Batch):
        raise ConfigError(
            'this policy learns from what follows a row, and these data come row by row, without an order of time',
            where='policy.collect.collector.data',
            expected='columns, such as those of an .npz file',
        )
    return columns


def last_rows(columns: Batch) -> BoolArray:
    """Returns which rows are the last recorded ones of their episode, bool [M]."""
    ends: BoolArray = np.asarray(columns['terminated']) | np.asarray(columns['truncated'])
    if 'episode' in columns:
        episode = np.asarray(columns['episode'])
        ends[:-1] |= episode[1:] != episode[:-1]
    ends[-1] = True
    return ends


def with_next_action(source: DataSource) -> RowSource:
    """Returns data with the column ``next_action``, the action in the next row; where an episode ends, that of the row itself."""
    columns = ordered_columns(source)
    action = np.asarray(columns['action'])
    following = np.roll(action, -1, 0)
    ends = last_rows(columns)
    following[ends] = action[ends]
    return RowSource(columns.replace(next_action=following), 'policy.collect.collector.data')
