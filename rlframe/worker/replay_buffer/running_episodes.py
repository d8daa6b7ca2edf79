"""Steps that wait until their episodes are over, and then enter a replay buffer episode by episode."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from rlframe.data import Batch, IntArray
from rlframe.data.timestep import BoolArray, from_tree, to_tree
from rlframe.worker.replay_buffer.ring import done_of, stack_items, to_items, to_numpy

BEFORE, AFTER = 'steps_before', 'steps_after'
"""Columns of a storage: steps of its episode before and after each step."""
MARKS = 'env_id', 'episode_step'
"""Columns by which collectors tell episodes apart."""


class RunningEpisodes:
    """Keeps the steps of running episodes until they end.

    An episode is over after its last step, or when its env has begun another one: then it was cut.
    """

    def __init__(self) -> None:
        self._parts: list[Batch] = []

    def take(self, data: Any) -> Batch:
        """Takes steps in time order, or a list of whole episodes, and returns the steps of the episodes that are over.

        Each episode is in one piece, with the columns ``BEFORE`` and ``AFTER``.
        """
        items = to_items(data)
        if isinstance(items, list) and items and all(isinstance(item, Batch) for item in items):
            return _numbered(to_numpy(Batch.cat(items)), np.array([len(item) for item in items]))
        rows = to_numpy(items if isinstance(items, Batch) else stack_items(items))
        self._parts.append(rows)
        if not done_of(rows).any():
            return _numbered(rows[:0], np.zeros(0, np.int64))
        return self._ended(Batch.cat(self._parts))

    def _ended(self, rows: Batch) -> Batch:
        """Returns the steps of the episodes that are over, and keeps the others."""
        order, length, is_over = _pieces(rows)
        goes = np.repeat(is_over, length)
        self._parts = [] if goes.all() else [rows[np.sort(order[~goes])]]
        return _numbered(rows[order[goes]], length[is_over])

    def longest(self, limit: int) -> int:
        """Returns the steps so far of the longest running episode, if it may have more than ``limit``; else 0."""
        if sum(map(len, self._parts)) <= limit:
            return 0
        marks = [name for name in (*MARKS, 'terminated', 'truncated') if name in self._parts[0]]
        rows = Batch.cat([Batch({name: part[name] for name in marks}) for part in self._parts])
        _, length, is_over = _pieces(rows)
        return int(length[~is_over].max(initial=0))

    def clear(self) -> None:
        """Forgets all steps."""
        self._parts = []

    def state_dict(self) -> Any:
        """Returns the steps that are kept."""
        return to_tree(Batch.cat(self._parts).map(np.copy)) if self._parts else {}

    def load_state_dict(self, state: Any) -> None:
        """Restores them."""
        self._parts = [from_tree(state).map(np.array)] if state else []


def episodes_of(rows: Batch) -> list[Batch]:
    """Returns the episodes of steps that are marked with ``AFTER``."""
    cuts = [0, *(np.flatnonzero(rows[AFTER] == 0) + 1).tolist()]
    return [rows[start:stop] for start, stop in pairwise(cuts)]


def _pieces(rows: Batch) -> tuple[IntArray, IntArray, BoolArray]:
    """Returns an order of steps in which each episode is in one piece, the steps of each, and whether it is over."""
    count = len(rows)
    env_id = np.asarray(rows['env_id']) if 'env_id' in rows else np.zeros(count, np.int64)
    order = np.argsort(env_id, kind='stable')
    env, ends = env_id[order], done_of(rows)[order]

    # where episodes start, in that order
    is_first = np.ones(count, bool)
    is_first[1:] = ends[:-1] | (env[1:] != env[:-1])
    if 'episode_step' in rows:
        is_first |= np.asarray(rows['episode_step'])[order] == 0
    start = np.flatnonzero(is_first)
    length = np.diff(start, append=count)

    # which of them are over
    is_over = ends[start + length - 1]
    is_over[:-1] |= env[start[1:]] == env[start[:-1]]
    return order, length, is_over


def _numbered(rows: Batch, length: IntArray) -> Batch:
    """Returns the steps of episodes of these lengths with ``BEFORE`` and ``AFTER``, in place of the marks of collectors."""
    stop = np.cumsum(length)
    place = np.arange(len(rows))
    before = place - np.repeat(stop - length, length)
    after = np.repeat(stop, length) - 1 - place
    marks = {BEFORE: before.astype(np.int32), AFTER: after.astype(np.int32)}
    return Batch({name: column for name, column in rows.items() if name not in MARKS} | marks)
