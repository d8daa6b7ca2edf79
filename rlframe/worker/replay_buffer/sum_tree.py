"""Sums and minima over priorities: a wide tree in flat arrays, with kernels for whole batches.

Every node is recomputed from its ``FANOUT`` children whenever one of them changes. So rounding errors do not
accumulate, and the tree is a function of its leaves. A leaf of 0 is absent: it is never drawn and is ignored in the
minimum.
"""

from __future__ import annotations

import math

import numpy as np

from rlframe.data import FloatArray, IntArray
from rlframe.worker.replay_buffer.stores.kernels import kernel

FANOUT = 8
MAX_PRIORITY = 1e30
"""Above it a sum of weights could overflow; an error of that size is a divergence, not a priority."""


class SumTree:
    """Weights of ``capacity`` slots, all absent at first.

    Args:
        capacity: Number of slots, >= 1.
    """

    def __init__(self, capacity: int) -> None:
        self.start = np.cumsum([0, *level_lengths(capacity)[:-1]])
        """Start of each level in ``total``: leaves first, root last. int64 [levels]."""
        self.total = np.zeros(sum(level_lengths(capacity)))
        """Weight of each leaf, sum below each node. float64 [nodes]."""
        self.low = np.full(len(self.total) - self.start[1], math.inf)
        """Smallest weight present below each node above the leaves. float64 [nodes - leaves]."""

    def set(self, slot: IntArray, weight: FloatArray) -> None:
        """Sets weights, >= 0 and finite; of a slot that recurs the last one counts. Both [n]."""
        self.total[slot] = weight
        refresh(self.total, self.low, self.start, slot)

    def find(self, mass: FloatArray) -> IntArray:
        """Returns the slots where the running sum of weights first exceeds ``mass``, in [0, sum()). [n]."""
        return descend(self.total, self.start, np.array(mass, np.float64))

    def sum(self) -> float:
        """Returns the sum of all weights."""
        return float(self.total[-1])

    def min(self) -> float:
        """Returns the smallest weight present, infinity if there is none."""
        return float(self.low[-1])

    def clear(self) -> None:
        """Marks all slots as absent."""
        self.total.fill(0.0)
        self.low.fill(math.inf)

    def nbytes(self) -> int:
        """Returns the bytes that are allocated."""
        return self.total.nbytes + self.low.nbytes


def level_lengths(capacity: int) -> list[int]:
    """Returns the nodes of each level, leaves first; all but the root are padded to whole blocks."""
    lengths = [math.ceil(capacity / FANOUT) * FANOUT]
    while (parents := lengths[-1] // FANOUT) > 1:
        lengths.append(math.ceil(parents / FANOUT) * FANOUT)
    return [*lengths, 1]


def tree_nbytes(capacity: int) -> int:
    """Returns the bytes that a ``SumTree`` of this capacity allocates."""
    lengths = level_lengths(capacity)
    return 8 * (lengths[0] + 2 * sum(lengths[1:]))


@kernel
def refresh(total: FloatArray, low: FloatArray, start: IntArray, slot: IntArray) -> None:
    """Recomputes all nodes above the leaves at ``slot`` [n], one that neighbours share only once."""
    node = slot.copy()
    count = len(slot)
    for level in range(1, len(start)):
        kept, last = 0, -1
        for i in range(count):
            parent = node[i] // FANOUT
            if parent != last:
                node[kept] = last = parent
                kept += 1
        count = kept
        for i in range(count):
            child = start[level - 1] + node[i] * FANOUT
            mass, least = 0.0, np.inf
            for c in range(child, child + FANOUT):
                mass += total[c]
                smallest = low[c - start[1]] if level > 1 else (total[c] if total[c] > 0 else np.inf)
                least = min(least, smallest)
            total[start[level] + node[i]] = mass
            low[start[level] + node[i] - start[1]] = least


@kernel
def descend(total: FloatArray, start: IntArray, mass: FloatArray) -> IntArray:
    """Returns the leaf that each ``mass`` [n] falls on; ``mass`` is used up.

    Rounding can leave a remainder beyond all children: then the last present child is chosen, here and below.
    """
    node = np.zeros(len(mass), np.int64)
    for level in range(len(start) - 2, -1, -1):
        for i in range(len(mass)):
            child = start[level] + node[i] * FANOUT
            running, below, chosen = 0.0, 0.0, 0
            for c in range(FANOUT):
                running += total[child + c]
                if running <= mass[i]:
                    below = running
                    chosen += 1
            if chosen < FANOUT:
                mass[i] -= below
            else:
                chosen -= 1
                while chosen > 0 and not total[child + chosen] > 0:
                    chosen -= 1
                mass[i] = np.inf
            node[i] = node[i] * FANOUT + chosen
    return node


@kernel
def weigh(priority: np.float32, alpha: float) -> float:
    """Returns ``priority ** alpha`` in single precision, half the time of double; 0 for an absent item."""
    return np.float64(priority ** np.float32(alpha)) if priority > 0 else 0.0


@kernel
def assign(
    total: FloatArray,
    low: FloatArray,
    start: IntArray,
    priority: FloatArray,
    alpha: float,
    slot: IntArray,
    new: FloatArray,
) -> None:
    """Gives the slots [n] new priorities [n]; 0 makes an item absent."""
    for i in range(len(slot)):
        priority[slot[i]] = new[i]
        total[slot[i]] = weigh(priority[slot[i]], alpha)
    refresh(total, low, start, slot)


@kernel
def append(
    total: FloatArray,
    low: FloatArray,
    start: IntArray,
    priority: FloatArray,
    use: IntArray,
    alpha: float,
    row: int,
    new: FloatArray,
) -> None:
    """Takes in new, unused items with the priorities ``new`` [n]; the first has the row number ``row``."""
    slot = np.empty(len(new), np.int64)
    for i in range(len(new)):
        s = (row + i) % len(priority)
        priority[s], use[s], slot[i] = new[i], 0, s
        total[s] = weigh(priority[s], alpha)
    refresh(total, low, start, slot)


@kernel
def update(  # noqa: PLR0913  # a kernel takes arrays, not objects
    total: FloatArray,
    low: FloatArray,
    start: IntArray,
    priority: FloatArray,
    alpha: float,
    eps: float,
    present: tuple[int, int],
    row: IntArray,
    slot: IntArray,
    new: FloatArray,
) -> tuple[int, int, float]:
    """Gives items new priorities; those that were overwritten or removed meanwhile are passed over.

    Args:
        total: Weights and their sums, leaves first. float64 [nodes].
        low: Smallest weights below the nodes above the leaves. float64 [nodes - leaves].
        start: Start of each level. int64 [levels].
        priority: Priority of each slot, 0 where absent. float32 [capacity].
        alpha: Exponent of priorities.
        eps: Added to each new priority.
        present: Row numbers of the oldest item and behind the newest one.
        row: Row numbers of the items. int64 [n].
        slot: Slots of the items. int64 [n].
        new: Their priorities. float64 [n].

    Returns:
        The number of invalid priorities and the position of the first (nothing is changed then), and the largest new
        priority of the items that still exist, -1 if none does.
    """
    bad, first_bad = 0, -1
    for i in range(len(new)):
        if not 0 <= new[i] <= MAX_PRIORITY:
            bad += 1
            if first_bad < 0:
                first_bad = i
    if bad:
        return bad, first_bad, -1.0
    capacity, kept, highest = len(priority), 0, -1.0
    changed = np.empty(len(new), np.int64)
    for i in range(len(new)):
        s = slot[i]
        if present[0] <= row[i] < present[1] and row[i] % capacity == s and priority[s] > 0:
            priority[s] = new[i] + eps
            total[s] = weigh(priority[s], alpha)
            highest = max(highest, new[i])
            changed[kept] = s
            kept += 1
    refresh(total, low, start, changed[:kept])
    return 0, -1, highest


@kernel
def stratify(total: FloatArray, start: IntArray, uniform: FloatArray) -> IntArray:
    """Draws a slot in each of n equal parts of the total weight; ``uniform`` [n] in [0, 1) is used up."""
    size = len(uniform)
    for i in range(size):
        uniform[i] = (i + uniform[i]) * (total[start[-1]] / size)
    return descend(total, start, uniform)


@kernel
def describe(
    total: FloatArray,
    priority: FloatArray,
    use: IntArray,
    slot: IntArray,
    least: float,
    beta: float,
    stop: int,
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Describes drawn items and counts them as used, one after the other.

    Args:
        total: Weights, leaves first.
        priority: Priority of each slot. float32 [capacity].
        use: Uses of each slot so far. int32 [capacity].
        slot: Drawn slots. int64 [n].
        least: Weight that has an importance of 1.
        beta: Exponent of the importance.
        stop: Row number that the next item gets.

    Returns:
        Row numbers (int64), importance weights ``(weight / least) ** -beta`` (float32), priorities
        (float32), uses (int32).

    Source:
        Schaul et al., arXiv 1511.05952, 3.4; the population cancels in the quotient.
    """
    size, last, capacity = len(slot), stop - 1, len(priority)
    row, used = np.empty(size, np.int64), np.empty(size, np.int32)
    importance, drawn = np.empty(size, np.float32), np.empty(size, np.float32)
    exponent = np.float32(beta)
    for i in range(size):
        s = slot[i]
        use[s] += 1
        used[i] = use[s]
        drawn[i] = priority[s]
        row[i] = last - (last - s) % capacity
        importance[i] = np.float32(least / total[s]) ** exponent
    return row, importance, drawn, used


@kernel
def draw(  # noqa: PLR0913  # a kernel takes arrays, not objects
    total: FloatArray,
    low: FloatArray,
    start: IntArray,
    priority: FloatArray,
    use: IntArray,
    uniform: FloatArray,
    beta: float,
    stop: int,
    by_batch: bool,
) -> tuple[IntArray, tuple[IntArray, FloatArray, FloatArray, IntArray]]:
    """Runs ``stratify`` and ``describe`` in one call.

    Args:
        total: Weights and their sums, leaves first. float64 [nodes].
        low: Smallest weights below the nodes above the leaves. float64 [nodes - leaves].
        start: Start of each level. int64 [levels].
        priority: Priority of each slot. float32 [capacity].
        use: Uses of each slot so far. int32 [capacity].
        uniform: Numbers in [0, 1), used up. float64 [n].
        beta: Exponent of the importance.
        stop: Row number that the next item gets.
        by_batch: Whether the smallest weight of the batch has an importance of 1, or that of the tree.
    """
    slot = stratify(total, start, uniform)
    least = low[-1]
    if by_batch:
        least = np.inf
        for s in slot:
            least = min(least, total[s])
    return slot, describe(total, priority, use, slot, least, beta, stop)
