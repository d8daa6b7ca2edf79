"""The tree equals a naive reference, whatever is done to it in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.worker.replay_buffer.sum_tree import FANOUT, WEIGHT, descend, empty_tree, refresh


class Tree:
    """A tree whose weights are set."""

    def __init__(self, capacity: int) -> None:
        self.nodes = empty_tree(capacity)

    def set(self, slot: np.ndarray, weight: np.ndarray) -> None:
        self.nodes[0][slot // FANOUT, WEIGHT, slot % FANOUT] = weight
        refresh(self.nodes, slot)

    def find(self, mass: np.ndarray) -> np.ndarray:
        return descend(self.nodes, np.array(mass, np.float64))

    def sum(self) -> float:
        return float(self.nodes[1][-1, 0])

    def min(self) -> float:
        return float(self.nodes[2][-1, 0])


weights = st.one_of(st.just(0.0), st.floats(2**-20, 2**20, width=32))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    capacity=st.integers(1, 700),
    steps=st.lists(st.lists(st.tuples(st.integers(0, 10**6), weights), min_size=1, max_size=40), max_size=6),
    part=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_tree_equals_a_list_of_weights(capacity: int, steps: list, part: list[float]) -> None:
    tree, reference = Tree(capacity), np.zeros(capacity)
    for step in steps:
        slot = np.array([s % capacity for s, _ in step])
        weight = np.array([w for _, w in step])
        tree.set(slot, weight)
        reference[slot] = weight
    present = reference[reference > 0]
    assert tree.sum() == pytest.approx(reference.sum(), rel=1e-12)
    assert tree.min() == (present.min() if len(present) else np.inf)
    if not len(present):
        return
    mass = np.array(part) * reference.sum()
    found = tree.find(mass)
    running = np.cumsum(reference)
    slack = 1e-9 * reference.sum()
    assert (reference[found] > 0).all()
    assert (running[found] >= mass - slack).all()
    assert (running[found] - reference[found] <= mass + slack).all()


@pytest.mark.parametrize('capacity', [1, FANOUT, FANOUT + 1, FANOUT**2, FANOUT**2 + 1, 1000])
def test_mass_beyond_the_sum_finds_the_last_item_present(capacity: int) -> None:
    tree = Tree(capacity)
    slot = np.arange(0, capacity, 3)
    tree.set(slot, np.full(len(slot), 0.1))
    assert (
        tree.find(np.array([tree.sum(), tree.sum() * 2, np.nextafter(tree.sum(), 0)])).tolist()
        == [slot[-1]] * 3
    )
    assert tree.find(np.array([0.0])).tolist() == [0]


def test_tree_does_not_drift() -> None:
    tree, rng = Tree(500), np.random.default_rng(0)
    for _ in range(500):
        tree.set(rng.integers(0, 500, 32), rng.random(32) * 10.0 ** rng.integers(-8, 8, 32))
    tree.set(np.arange(500), np.ones(500))
    assert tree.sum() == 500
    assert tree.min() == 1
