"""Laws of the ring (what is kept, where it lies, that nothing is shared), and of the tree, which equals a naive reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from buffer_helpers import assert_rows_intact, transitions
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data import Batch
from rlframe.errors import CheckpointCorruptError, CheckpointMismatchError, ResourceError
from rlframe.run import machine
from rlframe.worker.replay_buffer.device import check_memory
from rlframe.worker.replay_buffer.ring import (
    ObjectStorage,
    RingStorage,
    is_numeric,
    stack_items,
    to_numpy,
)
from rlframe.worker.replay_buffer.sum_tree import FANOUT, WEIGHT, descend, empty_tree, refresh


@settings(max_examples=60, deadline=None, derandomize=True)
@given(capacity=st.integers(1, 12), pushes=st.lists(st.integers(0, 30), max_size=8))
def test_ring_keeps_the_newest_rows_in_age_order(capacity: int, pushes: list[int]) -> None:
    ring, objects, total = RingStorage(capacity), ObjectStorage(capacity), 0
    for count in pushes:
        if count:
            ring.push(transitions(total, count))
            objects.push(list(range(total, total + count)))
        total += count
    expected = list(range(max(total - capacity, 0), total))
    assert len(ring) == len(objects) == len(expected)
    assert objects.gather(objects.window()) == expected
    if expected:
        rows = ring.gather(ring.window())
        assert rows['action'].tolist() == expected
        assert_rows_intact(rows)


def test_nested_batches_are_columns_too() -> None:
    ring = RingStorage(3)
    image = np.arange(10, dtype=np.uint8).reshape(5, 2)
    ring.push(Batch(obs=Batch(image=image, speed=np.arange(5.0)), action=np.arange(5)))
    rows = ring.gather(ring.window())
    np.testing.assert_array_equal(rows['obs']['image'], image[2:])
    assert rows['obs']['speed'].tolist() == [2, 3, 4]
    copy = RingStorage(3)
    copy.load_state_dict(ring.state_dict())
    np.testing.assert_array_equal(copy.gather(copy.window())['obs']['image'], image[2:])


@pytest.mark.parametrize('device', [None, torch.device('cpu')])
@pytest.mark.parametrize(
    'change',
    [
        lambda b: b.replace(actions=b['obs']),
        lambda b: b.replace(obs=b['obs'].astype(np.float64)),
        lambda b: b.replace(obs=b['obs'][:, :2]),
        lambda b: b.replace(obs=Batch(x=b['obs'])),
        lambda b: Batch(obs=b['obs']),
    ],
)
def test_block_of_other_columns_is_refused_by_name_and_nothing_is_written(change, device) -> None:
    ring = RingStorage(8, device)
    ring.push(transitions(0, 3))
    with raises(ValueError):
        ring.push(change(transitions(3, 3)))
    assert ring.gather(ring.window())['action'].tolist() == [0, 1, 2]


def test_columns_that_do_not_fit_into_memory_are_refused_before_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, 'available_memory', lambda: 2**30)
    monkeypatch.setattr(np, 'empty', lambda *a, **k: pytest.fail('allocated'))
    with raises(ResourceError):
        RingStorage(10**10).push(transitions(0, 1))
    check_memory(2**30, 'x')


def test_state_of_another_capacity_or_length_is_refused() -> None:
    ring = RingStorage(4)
    ring.push(transitions(0, 6))
    with raises(CheckpointMismatchError):
        RingStorage(5).load_state_dict(ring.state_dict())
    with raises(CheckpointCorruptError):
        RingStorage(4).load_state_dict({**ring.state_dict(), 'stop': 9})


def test_smallest_number_of_a_row_is_taken_over_all_its_axes() -> None:
    ring, objects = RingStorage(4), ObjectStorage(4)
    ring.push(Batch(collect_iter=np.array([[3, 1], [5, 4]]), nested=Batch(x=np.arange(2))))
    objects.push([{'collect_iter': [3, 1]}, {'collect_iter': 4}, {}])
    assert ring.row_min('collect_iter', np.arange(2)).tolist() == [1, 4]
    assert ring.row_min('nested', np.arange(2)) is None
    assert objects.row_min('collect_iter', np.arange(3)).tolist()[:2] == [1, 4]
    assert np.isnan(objects.row_min('collect_iter', np.arange(3))[2])


def test_numbers_arrays_and_tensors_make_columns_and_nothing_else_does() -> None:
    assert is_numeric({'a': 1, 'b': np.zeros(2), 'c': torch.zeros(1), 'd': {'e': True}, 'f': np.float32(1)})
    assert not is_numeric({'a': 'text'})
    assert not is_numeric({})
    assert not is_numeric({'a': np.array(['text'])})


def test_tensors_become_arrays_and_ragged_rows_are_named() -> None:
    rows = to_numpy(Batch(obs=torch.ones(2, 3, requires_grad=True), inner=Batch(x=torch.zeros(2))))
    assert type(rows['obs']) is np.ndarray
    assert type(rows['inner']['x']) is np.ndarray
    with raises(ValueError):
        stack_items([{'obs': np.zeros(2)}, {'obs': np.zeros(3)}])
    with raises(ValueError):
        stack_items([{'obs': 1}, {'action': 1}])


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
