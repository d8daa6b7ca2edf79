"""TrainingData: the data between collectors and the learner, and the updates that are due for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from rlframe.data.batch import Batch, from_tree, to_tree
from rlframe.transport.extras import joined, merged, split
from rlframe.utils.schema import COUNT, LIST, Kind, Schema, check_state, list_of

PART = Kind('rows, data and extras of a part', lambda v: LIST.fits(v) and len(v) == 3 and COUNT.fits(v[0]))
STATE: Schema = {'fresh': list_of(PART), 'owed': COUNT, 'learned': COUNT}


class Buffer(Protocol):
    """What is needed of a replay buffer."""

    def push(self, data: Any, cur_collector_envstep: int) -> int: ...
    def batches(self, count: int, size: int, cur_learner_iter: int) -> Any: ...
    def update(self, info: Mapping[str, Any]) -> None: ...
    def count(self) -> int: ...


class TrainingData:
    """Keeps the data of collectors for the learner, at the replay ratio of serial mode.

    With a replay buffer, each part of ``n_sample`` new items makes ``update_per_collect`` updates due, once the buffer
    has enough of them. Without one, each part is used once, as a whole and in the order of arrival.

    Args:
        buffer: The replay buffer; None for an on-policy policy.
        batch_size: Size of a batch from the buffer.
        update_per_collect: Updates due for each part.
    """

    def __init__(self, buffer: Buffer | None, batch_size: int = 1, update_per_collect: int = 1) -> None:
        self.buffer = buffer
        """The replay buffer, or None."""
        self._batch_size = batch_size
        self.updates_per_part = 1 if buffer is None else update_per_collect
        """Updates that a part makes due; without a buffer, a part is one batch."""
        self._fresh: deque[tuple[int, Any]] = deque()  # parts for an on-policy policy, with their rows
        self.owed = self.learned = self.given = 0
        """Updates that the data made due, that were made, and whose data the learner has got."""
        self._extras: dict[str, Any] = {}  # for the learner, with its next data

    @property
    def due(self) -> int:
        """Updates that remain to be made for the data that arrived."""
        return self.owed - self.learned

    def push(self, rows: int, data: Any, envstep: int, counts: bool = True) -> int:
        """Takes a part of a collector.

        Args:
            rows: Its size.
            data: The data, with extras for the learner if there are any.
            envstep: Env steps so far.
            counts: Whether updates are due for it.

        Returns:
            How many items were accepted.
        """
        data, extras = split(data)
        if self.buffer is None:
            self._fresh.append((rows, joined(data, extras)))
            self.owed += 1
            return rows
        self._extras = merged(self._extras, extras)
        accepted = self.buffer.push(data, envstep)
        if counts and self.buffer.count() >= self._batch_size:
            self.owed += self.updates_per_part
        return accepted

    def draw(self, train_iter: int) -> tuple[int, Any]:
        """Returns the data of the next round of updates, and the number of updates; 0 if none is due.

        Batches from a replay buffer come as one ``Batch`` with as many rows as all of them.
        """
        open_ = self.owed - self.given
        if open_ <= 0:
            return 0, None
        if self.buffer is None:
            self.given += 1
            return 1, self._fresh.popleft()[1]
        count = min(self.updates_per_part, open_)
        drawn = list(self.buffer.batches(count, self._batch_size, train_iter))
        self.given += count
        extras, self._extras = self._extras, {}
        return count, joined(drawn[0] if count == 1 else Batch.cat(drawn), extras)

    def report(self, updates: int, priorities: Mapping[str, Any] | None = None) -> None:
        """Takes note of updates that were made, and of the priorities of their data."""
        self.learned = min(self.learned + updates, self.owed)
        if priorities and self.buffer is not None:
            self.buffer.update(priorities)

    def learner_lost(self, made: int) -> None:
        """Makes the updates due again that a lost learner did not make, or whose results were lost with it.

        Args:
            made: Updates since the start that its saved state contains.
        """
        if self.buffer is None:
            self.learned = self.given  # the parts that it had received are lost with it
        else:
            self.learned = self.given = min(made, self.owed)

    def state_dict(self) -> dict[str, Any]:
        """Returns the waiting data and the counts; the replay buffer is saved on its own."""
        fresh = [[rows, *split(payload)] for rows, payload in self._fresh]
        saved = [[rows, to_tree(data), extras] for rows, data, extras in fresh]
        return {'fresh': saved, 'owed': self.owed, 'learned': self.learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; data that a learner had received are drawn again, or lost without a buffer."""
        check_state(state, STATE)
        self._fresh = deque((rows, joined(from_tree(data), extras)) for rows, data, extras in state['fresh'])
        self.owed, self.learned = state['owed'], state['learned']
        if self.buffer is None:
            self.learned = self.owed - len(self._fresh)
        self.given = self.learned
