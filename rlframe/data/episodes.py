"""Recorded episodes: what follows a row in its episode, and windows of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlframe.data.sources import BlockSource, DataSource, MixedSource, RowSource, joined
from rlframe.data.timestep import Batch, BoolArray, FloatArray, IntArray
from rlframe.errors import ConfigError


def ordered_columns(source: DataSource) -> Batch:
    """Returns the columns of data whose rows are in order of time, episode after episode; of several data, one after the other.

    Raises:
        ConfigError: If they have no such order, are not in memory, or are mixed by other shares than those of their rows.
    """
    if isinstance(source, MixedSource) and source.is_by_rows:
        return _in_a_row([ordered_columns(each) for each in source.sources])
    columns = getattr(source, 'rows', None)
    if isinstance(columns, Batch):
        return columns
    reason, remedy = (
        'and these come row by row, without an order of time',
        'Name columns, such as those of an .npz file.',
    )
    if isinstance(source, BlockSource):
        reason, remedy = (
            'and these are read from disk in random blocks',
            'Raise collector.memory above their size.',
        )
    if isinstance(source, MixedSource):
        reason, remedy = 'and these are mixed by shares', 'Leave collector.mix out.'
    raise ConfigError(
        f'this policy learns from what follows a row in its data, {reason}',
        where='policy.collect.collector.data',
        remedy=remedy,
    )


def _in_a_row(parts: list[Batch]) -> Batch:
    """Returns the rows of several data one after the other, with episodes that are numbered anew."""
    count = 0
    numbered = []
    for part in parts:
        episode = np.cumsum(np.append(False, last_rows(part)[:-1]))
        numbered.append(part.replace(episode=episode + count))
        count += int(episode[-1]) + 1
    return joined(numbered)


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


def returns_to_go(columns: Batch) -> FloatArray:
    """Returns the sum of the rewards from each row to the end of its episode, float32 [M]."""
    total = np.cumsum(np.asarray(columns['reward'], np.float64))
    end = np.flatnonzero(last_rows(columns))
    last = end[np.searchsorted(end, np.arange(len(total)))]
    before = total - np.asarray(columns['reward'])
    to_go: FloatArray = (total[last] - before).astype(np.float32)
    return to_go


class WindowSource(DataSource):
    """Windows of consecutive rows of one episode, with what is earned from each row on; each pass has its own order.

    There is a window for each row, which ends with it. Columns are [B, length, ...]: those of the data, ``return_to_go``,
    ``timestep``, which counts from the first row of an episode, and ``mask``, False where an episode has not begun yet.
    """

    def __init__(self, source: DataSource, length: int) -> None:
        columns = ordered_columns(source)
        is_first = np.append(True, last_rows(columns)[:-1])
        first = np.flatnonzero(is_first)
        number = np.arange(len(is_first))
        start = first[np.searchsorted(first, number, 'right') - 1]
        self.columns = columns.replace(return_to_go=returns_to_go(columns), timestep=number - start)
        """The rows, in order of time."""
        self.returns: FloatArray = np.asarray(self.columns['return_to_go'])[first]
        """Return of each episode."""
        self._length = length

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Batch]:
        order = rng.permutation(len(self.columns))
        starts = range(skip * size, len(order), size)
        return (self._windows(order[begin : begin + size]) for begin in starts)

    def _windows(self, last: IntArray) -> Batch:
        back = np.arange(1 - self._length, 1)
        mask = -back <= np.asarray(self.columns['timestep'])[last, None]
        picked: Batch = self.columns[np.where(mask, last[:, None] + back, last[:, None])]
        return picked.replace(mask=mask)


def with_returns(data: Batch) -> Batch:
    """Returns sequences [B, T, ...] with returns to go and numbers of steps; if they have none, of the rewards in them."""
    if 'return_to_go' in data:
        return data
    mask = np.asarray(data['mask'])
    reward = np.where(mask, data['reward'], 0)
    to_go = np.flip(np.cumsum(np.flip(reward, 1), 1), 1).astype(np.float32)
    return data.replace(return_to_go=to_go, timestep=np.maximum(np.cumsum(mask, 1) - 1, 0))
