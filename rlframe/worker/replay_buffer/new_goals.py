"""Compiled loops of hindsight: which rows get goals, from which steps, and what their next steps add up to."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.worker.replay_buffer.kernels import kernel

FUTURE, FINAL, EPISODE, RANDOM = range(4)
"""Strategies, as loops know them."""
STRATEGIES = {'future': FUTURE, 'final': FINAL, 'episode': EPISODE, 'random': RANDOM}


@kernel
def choose(
    chance: Any, share: Any, strategy: Any, slot: Any, before: Any, after: Any, first: Any, count: Any
) -> Any:
    """Chooses rows that get another goal, and the steps that reached it.

    Args:
        chance: Uniform numbers in [0, 1), float64 [B]: a row with one below ``share`` gets a goal, the step that it is taken
            from by the quotient.
        share: Share of the rows.
        strategy: One of ``STRATEGIES``.
        slot: Slots of the rows, int64 [B].
        before: Steps of its episode before the step in each slot, int32 [capacity].
        after: Steps behind it.
        first: Slot of the oldest step.
        count: Number of steps.

    Returns:
        Numbers of the chosen rows, and slots of the steps, int64 [K] each.
    """
    capacity = len(after)
    chosen, source = np.empty(len(slot), np.int64), np.empty(len(slot), np.int64)
    k = 0
    for i in range(len(slot)):
        chosen[k] = i
        k += chance[i] < share
    chosen, source = chosen[:k], source[:k]
    for k in range(len(chosen)):  # nothing but reads, so that the processor waits for many of them together
        source[k] = after[slot[chosen[k]]]
    for k in range(len(chosen)):
        low = slot[chosen[k]]
        choices = source[k] + 1
        if strategy == FINAL:
            low += choices - 1
            choices = 1
        elif strategy == EPISODE:  # its first steps may be overwritten
            kept = low - first if low >= first else low - first + capacity
            kept = min(np.int64(before[low]), kept)
            low -= kept
            choices += kept
        elif strategy == RANDOM:
            low = first
            choices = count
        place = low + np.int64(chance[chosen[k]] / share * choices)
        if place >= capacity:
            place -= capacity
        elif place < 0:
            place += capacity
        source[k] = place
    return chosen, source


@kernel
def give(obs_goal: Any, next_goal: Any, next_achieved: Any, chosen: Any, goal: Any) -> Any:
    """Writes goals, [K, G], into the chosen ones of B rows, and returns what these have achieved, [K, G].

    Args:
        obs_goal: Goal of each row before its step, [B, G].
        next_goal: The same behind it.
        next_achieved: What it has achieved then, [B, G].
        chosen: Numbers of the chosen rows, int64 [K].
        goal: Their goals, [K, G].
    """
    achieved = np.empty_like(goal)
    for k in range(len(chosen)):
        i = chosen[k]
        for j in range(goal.shape[1]):
            achieved[k, j] = next_achieved[i, j]
            obs_goal[i, j] = goal[k, j]
            next_goal[i, j] = goal[k, j]
    return achieved


@kernel
def windows(slot: Any, after: Any, nstep: Any) -> Any:
    """Returns the slots of the steps from each row on, its last one repeated, int64 [B, nstep], and how many they are, [B]."""
    capacity = len(after)
    window, length = np.empty((len(slot), nstep), np.int64), np.empty(len(slot), np.int64)
    for i in range(len(slot)):
        length[i] = min(np.int64(after[slot[i]]) + 1, nstep)
        for k in range(nstep):
            window[i, k] = (slot[i] + min(k, length[i] - 1)) % capacity
    return window, length


@kernel
def add_up(reward: Any, length: Any, discount: Any) -> Any:
    """Returns discounted sums of the first rewards of rows, float64 [B].

    Args:
        reward: float [B, nstep].
        length: How many are summed, int64 [B].
        discount: Weight of each, float64 [nstep + 1].
    """
    total = np.zeros(len(reward))
    for i in range(len(reward)):
        for k in range(length[i]):
            total[i] += discount[k] * reward[i, k]
    return total


@kernel
def cut(length: Any, chosen: Any, ends: Any) -> Any:
    """Ends chosen rows with the first step that ends their episode, of bool [K, nstep]; returns whether there is one, [K]."""
    is_over = np.zeros(len(chosen), np.bool_)
    for k in range(len(chosen)):
        for i in range(length[chosen[k]]):
            if ends[k, i]:
                length[chosen[k]] = i + 1
                is_over[k] = True
                break
    return is_over
