"""Measures how many versions collected data are behind the newest weights, and discards stale data."""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import Any

import numpy as np

from rlframe.backend.ray.actors.options import ActorsConfig, expected_staleness
from rlframe.backend.ray.shares import Ready, ReadyQueue

logger = logging.getLogger('rlframe.ray')

RECENT = 10
"""Number of recent batches of an actor used for its share of stale ones."""


class Staleness:
    """Measures staleness, discards stale batches, and warns if most batches of an actor are stale.

    Against the limit counts the time that a batch waits: for its actor to begin it, and here to be returned. How long
    its collection takes does not count: so a slow actor delivers what it began in time.

    Args:
        cfg: Options of the collector, of which ``max_staleness`` is the limit.
        where: Config key of the limit, for the warning.
    """

    def __init__(self, cfg: ActorsConfig, where: str) -> None:
        self._limit, self._where = cfg.max_staleness, where
        self._usual = expected_staleness(cfg.num_collectors, cfg.max_in_flight, 1)
        self._delivered: list[tuple[int, int]] = []  # versions behind and size, since the last record
        self._behind: dict[int, deque[int]] = {}  # of the recent batches of each rank, when they were begun
        self._warned: set[int] = set()

    def arrived(self, rank: int, behind: int) -> None:
        """Records how many versions an arriving batch was behind when it was begun, and warns if most are stale."""
        recent = self._behind.setdefault(rank, deque(maxlen=RECENT))
        recent.append(behind)
        if self._limit is None or len(recent) < RECENT or rank in self._warned:
            return
        stale = sum(own > self._limit for own in recent)
        if stale > RECENT // 2:
            self._warned.add(rank)
            self._warn(rank, stale / RECENT, max(recent))

    def is_late(self, rank: int) -> bool:
        """Whether an actor has recently begun a batch too late, so that it gets one request at a time."""
        return self._limit is not None and any(own > self._limit for own in self._behind.get(rank, ()))

    def _warn(self, rank: int, share: float, oldest: int) -> None:
        logger.warning(
            'Ray actor %d: %.0f %% of its last %d batches were discarded, because they were more than %s=%s versions behind'
            ' when they were begun (up to %d). Set %s to %d or to None, update the policy less often, or use fewer actors, fewer requests in flight'
            ' (max_in_flight) or smaller requests.',
            rank,
            100 * share,
            RECENT,
            self._where,
            self._limit,
            oldest,
            self._where,
            max(oldest, math.ceil(self._usual)),
        )

    def drop(self, ready: ReadyQueue, newest: int) -> int:
        """Discards stale batches, and returns their size."""
        return ready.drop_older(newest - self._limit) if self._limit is not None else 0

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
        seen, self._delivered = self._delivered or [(0, 1)], []
        return {
            'ray/staleness_mean': _mean(seen),
            'ray/staleness_max': float(max(behind for behind, _ in seen)),
        }


def _mean(seen: list[tuple[int, int]]) -> float:
    behind, sizes = np.array(seen, np.float64).T
    return float(np.average(behind, weights=sizes))
