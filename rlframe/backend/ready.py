"""Divides requests for data among actors, and joins the results."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.backend.worker import Header
from rlframe.data.timestep import Batch, from_tree, to_tree
from rlframe.errors import ConfigError
from rlframe.worker.collector.remote_collection import Counts

UNLIMITED = sys.maxsize
"""An amount to collect that is never reached."""


def shares(total: int, ranks: Sequence[int], unit: int, where: str) -> dict[int, int]:
    """Divides a request evenly; the remainder goes to the lowest ranks, and empty shares are omitted.

    Args:
        total: Training samples or episodes.
        ranks: Ranks of the actors that collect.
        unit: Number that must divide each share; if it is more than 1, all shares are equal.
        where: Name of the total, for the error.

    Raises:
        ConfigError: If shares must be equal and cannot be; with the nearest totals that work.
    """
    step = len(ranks) * unit
    if unit > 1 and total % step:
        below = total // step * step
        raise ConfigError(
            f'{len(ranks)} actors with {unit} envs take the same number of steps in each env, and {total} is not divisible by'
            f' {step}',
            where=where,
            got=total,
            expected=' or '.join(str(number) for number in (below, below + step) if number),
        )
    each, rest = divmod(total, len(ranks))
    divided = {rank: each + (i < rest) for i, rank in enumerate(ranks)}
    return {rank: share for rank, share in divided.items() if share}


class Ready(NamedTuple):
    """Data collected by an actor and not taken yet."""

    version: int
    """Version of the weights that acted."""
    data: Any
    size: int
    """Requested amount, in training samples of each player or in episodes."""
    during: int = 0
    """Versions that were published while it was collected."""
    rank: int = 0
    """Rank of the actor that the header is of."""
    header: Header | None = None
    """Facts about the data that are counted when they are delivered; None: they are counted."""

    @property
    def steps(self) -> int:
        """Env steps that it contains, over all players."""
        parts = self.data[0] if isinstance(self.data, tuple) else [self.data]
        return sum(len(own) if isinstance(own, Batch) else sum(map(len, own)) for own in parts)

    def cut(self, count: int) -> tuple[Ready, list[Ready]]:
        """Returns the first ``count`` of it, and the rest; all of it if it cannot be divided."""
        players = self.data[0] if isinstance(self.data, tuple) else [self.data]
        if count >= self.size or any(len(own) not in (0, self.size) for own in players):
            return self, []
        now, later = [own[:count] for own in players], [own[count:] for own in players]
        first, rest = now[0], later[0]
        if isinstance(self.data, tuple):
            infos = self.data[1]
            first, rest = (now, infos), (later, [[] for _ in infos])
        return self._replace(data=first, size=count), [self._replace(data=rest, size=self.size - count)]

    def state_dict(self, newest: int) -> dict[str, Any]:
        """Returns its state for a checkpoint, relative to the version of the newest weights."""
        data, infos = self.data if isinstance(self.data, tuple) else (self.data, None)
        state = {
            'behind': newest - self.version,
            'during': self.during,
            'data': to_tree(data),
            'infos': infos,
            'size': self.size,
        }
        if self.header is not None:
            counts = self.header.counts
            state |= {'rank': self.rank, 'extras': dict(self.header.extras)}
            state['counts'] = {**counts._asdict(), 'infos': dict(counts.infos)}
        return state

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any], newest: int) -> Ready:
        """Creates one from its state."""
        data = from_tree(state['data'])
        infos = state['infos']
        data = data if infos is None else (data, infos)
        ready = cls(newest - state['behind'], data, state['size'], state.get('during', 0))
        if 'counts' not in state:
            return ready
        header = Header(ready.version, Counts(**state['counts']), state['extras'])
        return ready._replace(rank=state['rank'], header=header)


class ReadyQueue(deque[Ready]):
    """Data that wait to be returned, in the order of arrival."""

    @property
    def size(self) -> int:
        """Requested amount, in training samples or episodes."""
        return sum(ready.size for ready in self)

    def take(self, count: int) -> list[Ready]:
        """Returns the first ``count`` of it, or a little more if that cannot be divided; so much must be available."""
        taken = []
        while count > 0:
            ready, later = self.popleft().cut(count)
            self.extendleft(later)
            count -= ready.size
            taken.append(ready)
        return taken


def merged(parts: Sequence[Any]) -> Any:
    """Concatenates what actors collected, in their order: batches, lists of episodes, and tuples part by part.

    Data of several players are a list with an entry for each, which are joined player by player.
    """
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Batch):
        return Batch.cat(parts)
    if isinstance(parts[0], tuple):
        return tuple([_joined(own) for own in zip(*part, strict=True)] for part in zip(*parts, strict=True))
    return [item for part in parts for item in part]


def _joined(parts: Sequence[Any]) -> Any:
    """Joins the data of one player; the list is empty if the player is not recorded."""
    filled = [part for part in parts if len(part)]
    return merged(filled) if filled else parts[0]


def writable(data: Any) -> Any:
    """Returns data with writable arrays; those in the object store are read-only, and are copied."""
    if isinstance(data, Batch):
        return data.map(
            lambda column: np.require(column, requirements='W') if isinstance(column, np.ndarray) else column
        )
    return type(data)(writable(part) for part in data) if isinstance(data, list | tuple) else data


class Staleness:
    """Measures staleness, and discards stale batches.

    Against the limit counts the time that a batch waits: for its actor to begin it, and here to be returned. How long
    its collection takes does not count: so a slow actor delivers what it began in time.

    Args:
        limit: Versions that the weights of a batch may be behind; None: any number.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._delivered: list[tuple[int, int]] = []  # versions behind and size, since the last record

    def drop(self, ready: ReadyQueue, newest: int) -> int:
        """Discards stale batches, and returns their size; versions published during a collection do not count."""
        if self._limit is None:
            return 0
        before = ready.size
        kept = [each for each in ready if each.version + each.during >= newest - self._limit]
        ready.clear()
        ready.extend(kept)
        return before - ready.size

    def delivered(self, parts: list[Ready], newest: int) -> None:
        """Records the batches handed to the learner."""
        self._delivered += [(newest - ready.version, ready.size) for ready in parts]

    def status(self, window: int) -> str:
        """Returns a summary of the recent batches; empty if there are none."""
        if not (recent := self._delivered[-window:]):
            return ''
        return f'staleness {_mean(recent):.1f} (at most {max(behind for behind, _ in recent)})'

    def metrics(self) -> dict[str, Any]:
        """Returns the figures since the last call of this."""
        seen = self._delivered or [(0, 1)]
        self._delivered = []
        return {
            'ray/staleness_mean': _mean(seen),
            'ray/staleness_max': float(max(behind for behind, _ in seen)),
        }


def _mean(seen: list[tuple[int, int]]) -> float:
    behind, sizes = np.array(seen, np.float64).T
    return float(np.average(behind, weights=sizes))
