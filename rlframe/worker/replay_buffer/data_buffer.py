"""BufferWithData: a replay buffer beside rows that are kept for good, with a share of each batch from those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlframe.data import Array, Batch, BoolArray
from rlframe.errors import BufferUnderflowError
from rlframe.utils.schema import DICT, check_state, part, part_of
from rlframe.worker.replay_buffer.buffer import IBuffer, Rows
from rlframe.worker.replay_buffer.ring import read_priorities

DATA = 'data'
"""Name of the rows that are kept, in a state."""
IS_DEMO = 'is_demo'
"""Column that says which rows of a batch are from the data, bool [B]; pushed rows that have it are sorted by it."""


class BufferWithData(IBuffer):
    """Draws a fixed share of each batch from data that are kept, and the rest from what a run collects.

    Both parts are replay buffers of the same kind, so that batches of sequences and draws by priority are as without data.
    Sampled rows have the column ``is_demo``; those of the data come first, and their ``replay_unique_id`` is negative.
    Until the run has collected enough for its part, whole batches are from the data.

    Args:
        own: Takes what the run collects.
        data: Takes the data: ``push_data``, and pushed rows whose column ``is_demo`` says so.
        share: Share of a batch that is from the data, in (0, 1).

    Source:
        Ball et al., Efficient Online Reinforcement Learning with Offline Data (2023), section 4.1, with a share of 0.5.
    """

    def __init__(self, own: IBuffer, data: IBuffer, share: float) -> None:
        self.own, self.data = own, data
        self._share = share

    @property
    def hindsight(self) -> Any:
        """What gives the rows that a run collects other goals; None: nothing does."""
        return getattr(self.own, 'hindsight', None)

    def push_data(self, rows: Batch) -> int:
        """Adds rows to the data, and returns their number."""
        return self.data.push(rows, 0)

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        if not isinstance(data, Batch) or IS_DEMO not in data:
            return self.own.push(data, cur_collector_envstep)
        is_demo = np.asarray(data[IS_DEMO])
        rows = Batch({name: column for name, column in data.items() if name != IS_DEMO})
        count = 0
        for buffer, chosen in ((self.data, is_demo), (self.own, ~is_demo)):
            if chosen.any():
                count += buffer.push(rows[chosen], cur_collector_envstep)
        return count

    def count(self) -> int:
        """Returns the number of rows of the largest batch that can be drawn."""
        data, own = self.data.count(), self.own.count()
        return max(data, int(min(data / self._share, own / (1 - self._share))))

    def _parts(self, size: int) -> tuple[int, int]:
        """Returns how many rows of a batch are from the data, and from what the run has collected.

        Raises:
            BufferUnderflowError: If there are too few of the data.
        """
        of_data = min(max(round(self._share * size), 1), size)
        if self.own.count() < max(size - of_data, 1):
            of_data = size
        if self.data.count() < of_data:
            raise BufferUnderflowError(
                f'the replay buffer has {self.data.count()} rows of data, and {of_data} of a batch of {size} are from those',
                where='policy.other.replay_buffer.init_share',
                remedy='Take a smaller batch, or more data.',
            )
        return of_data, size - of_data

    def sample(self, size: int, cur_learner_iter: int) -> Rows | None:
        return next(self.batches(1, size, cur_learner_iter))

    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Rows]:
        if not count * size:
            return iter(())
        of_data, of_own = self._parts(size)
        data = self.data.batches(count, of_data, cur_learner_iter)
        if not of_own:
            return (_joined([rows]) for rows in data)
        own = self.own.batches(count, of_own, cur_learner_iter)
        return (_joined(pair) for pair in zip(data, own, strict=False))  # own items may be used up

    def update(self, info: Mapping[str, Any]) -> None:
        reported = read_priorities(info)
        if reported is None:
            return
        row, slot, priority = reported
        is_demo = row < 0
        for buffer, chosen, number in ((self.data, is_demo, ~row), (self.own, ~is_demo, row)):
            if chosen.any():
                names = 'replay_unique_id', 'replay_buffer_idx', 'priority'
                columns = number[chosen], slot[chosen], priority[chosen]
                buffer.update(dict(zip(names, columns, strict=True)))

    def clear(self) -> None:
        """Forgets what the run has collected; the data stay."""
        self.own.clear()

    def metrics(self) -> dict[str, float]:
        return {**self.own.metrics(), 'buffer/data': float(self.data.count())}

    def state_dict(self) -> dict[str, Any]:
        return {**self.own.state_dict(), DATA: self.data.state_dict()}

    def checkpoint_state(self) -> dict[str, Any]:
        return {**self.own.checkpoint_state(), DATA: self.data.state_dict()}

    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        check_state(_state_dict, DICT)
        with part(DATA):
            self.data.load_state_dict(part_of(_state_dict, DATA, DICT))
        self.own.load_state_dict({name: value for name, value in _state_dict.items() if name != DATA})


def _joined(parts: Any) -> Batch:
    """Returns batches of the data and, if there is a second one, of the run as one."""
    marked = []
    for is_demo, rows in zip((True, False), parts, strict=False):
        assert isinstance(rows, Batch)  # what policies push are columns
        columns: dict[str, Array | Any] = dict(rows.items())
        if is_demo and 'replay_unique_id' in rows:
            columns['replay_unique_id'] = ~rows['replay_unique_id']
        flags: BoolArray = np.full(len(rows), is_demo)
        marked.append(Batch.unchecked({**columns, IS_DEMO: flags}, len(rows)))
    return Batch.cat(marked)
