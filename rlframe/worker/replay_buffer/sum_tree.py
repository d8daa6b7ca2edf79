"""Sums and minima over priorities: a wide tree in flat arrays, with kernels for whole batches.

Every node is recomputed from its ``FANOUT`` children whenever one of them changes. So rounding errors do not
accumulate, and the tree is a function of its leaves. A leaf of 0 is absent: it is never drawn and is ignored in the
minimum.

In a large tree most time goes by waiting for memory. So what a step of a kernel reads together is in one cache line, and
kernels go level by level: they ask for the lines of the next level for all items before they read the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from rlframe.data.timestep import FloatArray, IntArray, aligned_zeros
from rlframe.worker.replay_buffer.kernels import kernel

Nodes = tuple[FloatArray, FloatArray, FloatArray, IntArray]
"""A tree: weights and priorities of the leaves, float32 [blocks, 2, FANOUT], a block in one cache line; sums, float64 [blocks,
FANOUT], and smallest weights present, float32 [blocks, FANOUT], below each node; and the first block of each level above the
leaves in these two, the root last, int64 [levels]."""
FANOUT = 8
MAX_PRIORITY = 1e30
"""Above it a sum of weights could overflow; an error of that size is a divergence, not a priority."""
WEIGHT, PRIORITY = 0, 1
"""Rows of a block of leaves."""


def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    """Returns the types and the code of ``ask_for``: LLVM's ``prefetch`` to read, into all caches."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, values[0])
        stride = builder.extract_value(made.strides, 0)
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(made.data, byte), [builder.mul(values[1], stride)])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = get_or_insert_function(builder.module, kind, 'llvm.prefetch.p0i8')  # type: ignore[no-untyped-call]  # numba has no annotations
        read, all_caches, data = number(0), number(3), number(1)
        builder.call(prefetch, [address, read, all_caches, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


ask_for = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
"""Asks for the cache line where a row of an array begins, without waiting for it; for kernels."""


def empty_tree(capacity: int) -> Nodes:
    """Returns a tree of ``capacity`` slots, >= 1, all absent.

    Nodes are in blocks of ``FANOUT`` siblings. Node ``n`` of a level is number ``n % FANOUT`` in block ``n // FANOUT`` of
    that level, and its children are block ``n`` of the level below.
    """
    blocks = [math.ceil(capacity / FANOUT)]
    while blocks[-1] > 1:
        blocks.append(math.ceil(blocks[-1] / FANOUT))
    above = sum(blocks[1:]) + 1
    leaf = aligned_zeros((blocks[0], 2, FANOUT), np.dtype(np.float32))
    total = aligned_zeros((above, FANOUT), np.dtype(np.float64))
    low = aligned_zeros((above, FANOUT), np.dtype(np.float32))
    low.fill(math.inf)
    return leaf, total, low, np.cumsum([0, *blocks[1:]])


@kernel
def parents(node: IntArray, count: int) -> int:
    """Replaces the first ``count`` nodes by their parents, one that neighbours share only once, and counts them."""
    kept = 0
    last = -1
    for i in range(count):
        parent = node[i] // FANOUT
        if parent != last:
            node[kept] = last = parent
            kept += 1
    return kept


@kernel
def refresh(nodes: Nodes, slot: IntArray) -> None:
    """Recomputes all nodes above the leaves at ``slot`` [n], one that neighbours share only once."""
    leaf, total, low, start = nodes
    node = slot.copy()
    count = parents(node, len(slot))
    # lowest level, from the leaves
    for i in range(count):
        mass = 0.0
        least = np.float32(np.inf)
        for c in range(FANOUT):
            weight = leaf[node[i], WEIGHT, c]
            mass += weight
            least = min(least, weight if weight > 0 else np.float32(np.inf))
        total[node[i] // FANOUT, node[i] % FANOUT] = mass
        low[node[i] // FANOUT, node[i] % FANOUT] = least
    # each level above, from the one below
    for level in range(1, len(start)):
        count = parents(node, count)
        for i in range(count):
            block = start[level - 1] + node[i]
            mass = 0.0
            least = np.float32(np.inf)
            for c in range(FANOUT):
                mass += total[block, c]
                least = min(least, low[block, c])
            total[start[level] + node[i] // FANOUT, node[i] % FANOUT] = mass
            low[start[level] + node[i] // FANOUT, node[i] % FANOUT] = least


@kernel
def choose(child: FloatArray, mass: float) -> tuple[int, float]:
    """Returns the child that ``mass`` falls on, and the rest of ``mass``, which chooses among the child's children.

    Rounding can leave a remainder beyond all children: then the last present child is chosen, here and below.
    """
    running, below, chosen = 0.0, 0.0, 0
    for c in range(FANOUT):
        running += child[c]
        if running <= mass:
            below = running
            chosen += 1
    if chosen < FANOUT:
        return chosen, mass - below
    chosen -= 1
    while chosen > 0 and not child[chosen] > 0:
        chosen -= 1
    return chosen, np.inf


@kernel
def descend(nodes: Nodes, mass: FloatArray) -> IntArray:
    """Returns the leaf that each ``mass`` [n] falls on; ``mass`` is used up."""
    leaf, total, _, start = nodes
    node = np.zeros(len(mass), np.int64)
    for level in range(len(start) - 2, -1, -1):
        for i in range(len(mass)):
            chosen, mass[i] = choose(total[start[level] + node[i]], mass[i])
            node[i] = node[i] * FANOUT + chosen
            if level > 0:
                ask_for(total, start[level - 1] + node[i])
            else:
                ask_for(leaf, node[i])
    for i in range(len(mass)):
        chosen, mass[i] = choose(leaf[node[i], WEIGHT], mass[i])
        node[i] = node[i] * FANOUT + chosen
    return node


@kernel
def weigh(priority: np.float32, alpha: float) -> np.float32:
    """Returns ``priority ** alpha`` in single precision, half the time of double; 0 for an absent item."""
    return priority ** np.float32(alpha) if priority > 0 else np.float32(0)


@kernel
def enter(leaf: FloatArray, slot: int, priority: float, alpha: float) -> int:
    """Sets the priority and the weight of a leaf, but not the sums above it; 0 makes an item absent.

    Returns:
        1 if an absent item became present, -1 for the reverse, else 0.
    """
    block, c = slot // FANOUT, slot % FANOUT
    was_present = leaf[block, PRIORITY, c] > 0
    leaf[block, PRIORITY, c] = priority
    leaf[block, WEIGHT, c] = weigh(leaf[block, PRIORITY, c], alpha)
    return int(leaf[block, PRIORITY, c] > 0) - int(was_present)


@kernel
def row_in(slot: int, stop: int, capacity: int) -> int:
    """Returns the row number below ``stop`` of the newest item that was written to a slot."""
    newest = (stop - 1) % capacity
    return stop - 1 - newest + slot - (capacity if slot > newest else 0)


@kernel
def assign(nodes: Nodes, alpha: float, slot: IntArray, new: FloatArray) -> int:
    """Sets new priorities [n] of slots [n], 0 makes an item absent; returns how many more items are present."""
    more = 0
    for i in range(len(slot)):
        more += enter(nodes[0], slot[i], new[i], alpha)
    refresh(nodes, slot)
    return more


@kernel
def append(nodes: Nodes, use: IntArray, alpha: float, row: int, new: FloatArray) -> int:
    """Takes in new, unused items with the priorities ``new`` [n]; the first has the row number ``row``.

    Returns:
        How many more items are present than before.
    """
    more = 0
    slot = np.empty(len(new), np.int64)
    for i in range(len(new)):
        slot[i] = (row + i) % len(use)
        use[slot[i]] = 0
        more += enter(nodes[0], slot[i], new[i], alpha)
    refresh(nodes, slot)
    return more


@kernel
def update(
    nodes: Nodes,
    capacity: int,
    alpha: float,
    eps: float,
    present: tuple[int, int],
    row: IntArray,
    slot: IntArray,
    new: FloatArray,
) -> tuple[bool, float]:
    """Sets new priorities; items that were overwritten or removed meanwhile are skipped.

    Args:
        nodes: The tree.
        capacity: Number of slots.
        alpha: Exponent of priorities.
        eps: Added to each new priority.
        present: Row numbers of the oldest item and behind the newest one.
        row: Row numbers of the items. int64 [n].
        slot: Slots of the items. int64 [n].
        new: Their priorities. float64 [n].

    Returns:
        Whether all priorities are valid (else nothing is changed), and the largest new priority of the items that still
        exist, -1 if none does.
    """
    leaf, total, low, _ = nodes
    # ask for the cache lines
    is_valid = True
    for i in range(len(new)):
        ask_for(leaf, slot[i] // FANOUT)
        ask_for(total, slot[i] // FANOUT**2)
        ask_for(low, slot[i] // FANOUT**2)
        is_valid &= 0 <= new[i] <= MAX_PRIORITY
    if not is_valid:
        return False, -1.0
    # set the leaves
    kept = 0
    highest = -1.0
    changed = np.empty(len(new), np.int64)
    for i in range(len(new)):
        s = slot[i]
        is_there = 0 <= s < capacity and row[i] >= present[0] and row[i] == row_in(s, present[1], capacity)
        if is_there and leaf[s // FANOUT, PRIORITY, s % FANOUT] > 0:
            enter(leaf, s, new[i] + eps, alpha)
            highest = max(highest, new[i])
            changed[kept] = s
            kept += 1
    refresh(nodes, changed[:kept])
    return True, highest


@kernel
def describe(
    leaf: FloatArray, use: IntArray, slot: IntArray, least: float, beta: float, stop: int
) -> tuple[IntArray, FloatArray, FloatArray, IntArray]:
    """Describes drawn items and counts them as used, one after the other.

    Args:
        leaf: Weights and priorities of the leaves. float32 [blocks, 2, FANOUT].
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
    size = len(slot)
    row, used = np.empty(size, np.int64), np.empty(size, np.int32)
    importance, drawn = np.empty(size, np.float32), np.empty(size, np.float32)
    exponent = np.float32(beta)
    for i in range(size):
        ask_for(use, slot[i])
    for i in range(size):
        s = slot[i]
        use[s] += 1
        used[i] = use[s]
        drawn[i] = leaf[s // FANOUT, PRIORITY, s % FANOUT]
        row[i] = row_in(s, stop, len(use))
        importance[i] = np.float32(np.float64(least) / leaf[s // FANOUT, WEIGHT, s % FANOUT]) ** exponent
    return row, importance, drawn, used


@kernel
def draw(
    nodes: Nodes, use: IntArray, uniform: FloatArray, beta: float, stop: int, by_batch: bool
) -> tuple[IntArray, tuple[IntArray, FloatArray, FloatArray, IntArray]]:
    """Draws a slot in each of n equal parts of the total weight, and describes the items there.

    Args:
        nodes: The tree.
        use: Uses of each slot so far. int32 [capacity].
        uniform: Numbers in [0, 1), used up. float64 [n].
        beta: Exponent of the importance.
        stop: Row number that the next item gets.
        by_batch: Whether the smallest weight of the batch has an importance of 1, or that of the tree.
    """
    leaf, total, low, _ = nodes
    for i in range(len(uniform)):
        uniform[i] = (i + uniform[i]) * (total[-1, 0] / len(uniform))
    slot = descend(nodes, uniform)
    least = low[-1, 0]
    if by_batch:
        least = np.float32(np.inf)
        for s in slot:
            least = min(least, leaf[s // FANOUT, WEIGHT, s % FANOUT])
    return slot, describe(leaf, use, slot, least, beta, stop)
