"""Proportional prioritized sampling over the slots of a ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlframe.data import FloatArray, IntArray
from rlframe.errors import NonFiniteError
from rlframe.utils.schema import FINITE, array, check_state
from rlframe.worker.replay_buffer import sum_tree
from rlframe.worker.replay_buffer.ring import Ring
from rlframe.worker.replay_buffer.sum_tree import MAX_PRIORITY

if TYPE_CHECKING:
    from rlframe.worker.replay_buffer.advanced_buffer import PriorityConfig

EPS = 1e-5
"""Added to every priority, so that every item can be drawn."""


class Draw(NamedTuple):
    """The drawn items, all [n]."""

    slot: IntArray
    row: IntArray
    """Row number, which no other item ever has."""
    IS: FloatArray
    """Importance weight, float32."""
    priority: FloatArray
    """float32."""
    use: IntArray
    """Number of draws of the item, including this one."""


class PrioritizedSampler:
    """Draws slots with probability proportional to ``priority ** alpha``; stores priorities and use counts.

    Source:
        Schaul et al., Prioritized Experience Replay (2016), arXiv 1511.05952, 3.3 and algorithm 1.
    """

    def __init__(self, capacity: int, options: PriorityConfig, rng: np.random.Generator) -> None:
        self.alpha = options.alpha
        """Exponent of priorities: 0 is uniform, 1 is proportional."""
        self.beta = options.beta
        """Exponent of the importance weights of the next draw."""
        self._beta_step = (1 - options.beta) / options.anneal_step if options.anneal_step else 0.0
        self.max_priority = 1.0
        """Largest priority that the learner reported; the priority of new items."""
        self._by_batch = options.is_normalization == 'batch'
        self._rng = rng
        self._nodes = sum_tree.empty_tree(capacity)
        self._use = np.zeros(capacity, np.int32)
        self.count = 0
        """Number of items that can be drawn."""

    @staticmethod
    def check(priority: FloatArray) -> None:
        """Refuses NaN, infinite and negative priorities.

        Raises:
            NonFiniteError: With their number and the position of the first.
        """
        bad = np.flatnonzero(~((priority >= 0) & (priority <= MAX_PRIORITY)))
        if len(bad):
            raise NonFiniteError(
                f'{len(bad)} of {len(priority)} priorities are NaN, infinite, negative or above {MAX_PRIORITY:g};'
                f' the first, at position {bad[0]}, is {priority[bad[0]]}',
                where='priority',
                remedy='Nothing was changed. Is the loss finite?',
            )

    def add(self, row: int, count: int, priority: FloatArray | None) -> None:
        """Takes in new items, from a row number on, with priorities, float64 [count]; None gives them ``max_priority``."""
        if priority is None:
            new: FloatArray = np.empty(count)
            new.fill(self.max_priority + EPS)
        else:
            new = priority + EPS
        self.count += sum_tree.append(self._nodes, self._use, self.alpha, row, new)

    def anneal(self) -> None:
        """Advances ``beta`` by one step, up to 1."""
        self.beta = min(self.beta + self._beta_step, 1.0)

    def draw(self, size: int, stop: int) -> Draw:
        """Draws one item in each of ``size`` equal parts of the total weight; an item can recur.

        ``stop`` is the row number that the next item gets.
        """
        uniform = self._rng.random(size)
        slot, described = sum_tree.draw(self._nodes, self._use, uniform, self.beta, stop, self._by_batch)
        return Draw(slot, *described)

    def draw_in(self, age: slice, size: int, storage: Ring) -> Draw | None:
        """Draws like ``draw``, as if there were only the items in a slice of the age order; None if there are none."""
        if self.count == len(storage):
            slot = storage.window(age)
        else:
            slot = storage.window()
            slot = slot[self.is_present(slot)][age]
        if not len(slot):
            return None
        weight = self._of_leaves(sum_tree.WEIGHT, slot).astype(np.float64)
        running = np.cumsum(weight)
        mass = (np.arange(size) + self._rng.random(size)) * (running[-1] / size)
        found = np.minimum(np.searchsorted(running, mass, side='right'), len(slot) - 1)
        slot = slot[found]
        least = float((weight[found] if self._by_batch else weight).min())
        described = sum_tree.describe(self._nodes[0], self._use, slot, least, self.beta, storage.stop)
        return Draw(slot, *described)

    def draw_at(self, mass: FloatArray, total: float, least: float, beta: float, stop: int) -> Draw:
        """Draws the items that given points of the total weight fall on, for a sampler over several of these.

        Args:
            mass: Points in [0, total), float64 [n]; used up.
            total: The total weight that they were chosen for; if it has changed since, they are moved in proportion.
            least: Weight that has an importance of 1.
            beta: Exponent of the importance weights.
            stop: Row number that the next item gets.
        """
        own = self.sums()[0]
        if own != total:
            mass = mass * (own / total)
        slot = sum_tree.descend(self._nodes, mass)
        return Draw(slot, *sum_tree.describe(self._nodes[0], self._use, slot, least, beta, stop))

    def sums(self) -> tuple[float, float]:
        """Returns the total and the smallest weight of all items: 0 and infinite if there are none."""
        _, total, low, _ = self._nodes
        return float(total[-1, 0]), float(low[-1, 0])

    def update(self, row: IntArray, slot: IntArray, priority: FloatArray, present: tuple[int, int]) -> None:
        """Sets new priorities; items that were overwritten or removed since they were drawn are skipped.

        Args:
            row: Row numbers, int64 [n].
            slot: Slots of the items, int64 [n].
            priority: float64 [n].
            present: Row numbers of the oldest item and behind the newest one.

        Raises:
            NonFiniteError: If a priority is NaN, infinite or negative; nothing is changed.
        """
        capacity = len(self._use)
        is_valid, highest = sum_tree.update(
            self._nodes, capacity, self.alpha, EPS, present, row, slot, priority
        )
        if not is_valid:
            self.check(priority)
        self.max_priority = max(self.max_priority, highest)

    def remove(self, slot: IntArray) -> None:
        """Marks items as absent."""
        self._assign(slot, np.zeros(len(slot)))

    def is_present(self, slot: IntArray) -> npt.NDArray[np.bool_]:
        """Says which slots hold an item that can be drawn."""
        return self._of_leaves(sum_tree.PRIORITY, slot) > 0

    def clear(self) -> None:
        """Marks all items as absent and resets the largest priority."""
        self._nodes = sum_tree.empty_tree(len(self._use))
        self.max_priority, self.count = 1.0, 0

    def state_dict(self, slot: IntArray) -> dict[str, Any]:
        """Returns the data of the items at ``slot``, in that order. The tree follows from it."""
        return {
            'max_priority': self.max_priority,
            'beta': self.beta,
            'priority': self._of_leaves(sum_tree.PRIORITY, slot),
            'use': self._use[slot],
        }

    def load_state_dict(self, state: Mapping[str, Any], slot: IntArray) -> None:
        """Restores the items at ``slot``."""
        check_state(state, {'max_priority': FINITE, 'beta': FINITE})
        check_state(state, {'priority': array('f', slot.shape), 'use': array('iu', slot.shape)})
        priority = np.array(state['priority'], np.float64)
        self.check(priority)
        self.clear()
        self.max_priority, self.beta = float(state['max_priority']), float(state['beta'])
        self._use[slot] = state['use']
        self._assign(slot, priority)

    def _of_leaves(self, row: int, slot: IntArray) -> FloatArray:
        """Returns the weights or the priorities of slots, 0 where absent. float32 [n]."""
        values: FloatArray = self._nodes[0][slot // sum_tree.FANOUT, row, slot % sum_tree.FANOUT]
        return values

    def _assign(self, slot: IntArray, new: FloatArray) -> None:
        self.count += sum_tree.assign(self._nodes, self.alpha, slot, new)
