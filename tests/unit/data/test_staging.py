"""Laws of staging: what arrives is what was given, and no buffer is written to while it is still read."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data import Batch
from rlframe.data.staging import LEAST, MOST, Staging
from rlframe.policy.parts.sequences import to_tensor

CPU = torch.device('cpu')
FIELDS = np.dtype({'names': ['image', 'speed'], 'formats': [('u1', (3, 2)), '<f4']}, align=True)
TYPES = ('f2', 'f4', 'f8', 'u1', 'u2', 'u4', 'i1', 'i4', 'i8', '?', 'c8')


class LateEvent:
    """The event of a device that finishes its copies only when it is told to, or waited for."""

    made: list[LateEvent]
    waits: int

    def __init__(self) -> None:
        self.is_finished = True
        LateEvent.made.append(self)

    def record(self) -> None:
        assert self.is_finished, 'the buffer was written to while it was read'
        self.is_finished = False

    def query(self) -> bool:
        return self.is_finished

    def synchronize(self) -> None:
        LateEvent.waits += not self.is_finished
        self.is_finished = True


@pytest.fixture
def late() -> Staging:
    LateEvent.made, LateEvent.waits = [], 0
    return Staging(CPU, pin=False, event=LateEvent)


def finish() -> None:
    """Finishes all copies."""
    for event in LateEvent.made:
        event.is_finished = True


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_what_arrives_is_what_was_given(data: st.DataObject) -> None:
    staging, given_, got = Staging.onto(CPU), [], []
    for seed in range(data.draw(st.integers(1, 12))):
        rows, shape = data.draw(st.integers(0, 9)), data.draw(st.sampled_from([(), (1,), (2, 3)]))
        array = np.random.default_rng(seed).integers(0, 100, (rows, *shape))
        array = array.astype(data.draw(st.sampled_from(TYPES)))
        if data.draw(st.booleans()):
            array = np.repeat(array, 2, axis=0)[::2]  # not contiguous
        array.setflags(write=False)
        given_.append(array)
        got.append(staging(array))
    for array, tensor in zip(given_, got, strict=True):
        assert tensor.numpy().dtype == array.dtype
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_fields_and_nested_batches_become_dicts_as_without_staging() -> None:
    rows = np.zeros(4, FIELDS)
    rows['image'], rows['speed'] = np.arange(24).reshape(4, 3, 2), np.arange(4)
    staging = Staging.onto(CPU)
    for column in (rows, Batch(obs=rows, tensor=torch.arange(4.0), nested=Batch(x=np.arange(4)))):
        assert_same(staging(column), to_tensor(column))


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    else:
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_tensors_on_the_device_are_not_copied_unless_they_are_misaligned() -> None:
    staging, tensor = Staging.onto(CPU), torch.arange(40.0)
    assert staging(tensor) is tensor
    assert staging(tensor[:16]).data_ptr() == tensor.data_ptr()
    moved = staging(tensor[1:17])
    assert torch.equal(moved, tensor[1:17])
    assert moved.data_ptr() != tensor[1:].data_ptr()


def test_changing_an_array_or_a_tensor_afterwards_changes_nothing_else() -> None:
    staging, array = Staging.onto(CPU), np.arange(6.0)
    first = staging(array)
    array[:] = 9
    second = staging(array)
    second[:] = 7
    assert first.tolist() == [0, 1, 2, 3, 4, 5]
    assert staging(array).tolist() == [9] * 6


def test_two_buffers_take_turns_without_waiting_if_copies_are_finished(late: Staging) -> None:
    for _ in range(10):
        before = [event for event in LateEvent.made if not event.is_finished]
        late(np.zeros((5, 3), np.float32))
        for event in before:  # all copies but the last one
            event.is_finished = True
    assert (len(LateEvent.made), LateEvent.waits) == (LEAST, 0)


def test_a_buffer_in_use_is_left_alone_until_there_are_most(late: Staging) -> None:
    for number in range(MOST):
        late(np.full((5, 3), number, np.float32))
        assert (len(LateEvent.made), LateEvent.waits) == (number + 1, 0)
    for number in range(1, 4):
        late(np.zeros((5, 3), np.float32))
        assert (len(LateEvent.made), LateEvent.waits) == (MOST, number)
    finish()
    for _ in range(2 * MOST):
        late(np.zeros((5, 3), np.float32))
        finish()
    assert (len(LateEvent.made), LateEvent.waits) == (MOST, 3)


def test_the_oldest_copy_is_waited_for(late: Staging) -> None:
    for _ in range(MOST):
        late(np.zeros(4))
    late(np.zeros(4))
    assert [event.is_finished for event in LateEvent.made] == [False] * MOST  # the first was recorded anew
    LateEvent.made[1].is_finished = True
    late(np.zeros(4))
    assert LateEvent.waits == 1


def test_a_buffer_grows_only_when_its_copy_is_finished(late: Staging) -> None:
    for _ in range(MOST):
        late(np.zeros((2, 3)))
    grown = late(np.ones((50, 3)))
    assert LateEvent.waits == 1
    assert grown.tolist() == np.ones((50, 3)).tolist()
    assert len(LateEvent.made) == MOST


def test_rows_of_a_larger_tensor_are_written_in_place() -> None:
    staging, ring = Staging.onto(CPU), torch.zeros(6, 2, dtype=torch.uint8)
    staging.copy(np.full((3, 2), 5, np.uint8), ring[2:5])
    assert ring[:, 0].tolist() == [0, 0, 5, 5, 5, 0]


def test_what_was_staged_while_acting_can_be_learned_from() -> None:
    staging = Staging.onto(CPU)
    with torch.inference_mode():
        for _ in range(LEAST):
            staging(np.ones((4, 3), np.float32))
    network = torch.nn.Linear(3, 1)
    network(staging(np.ones((4, 3), np.float32))).sum().backward()
    assert network.weight.grad is not None


def test_a_copy_has_buffers_of_its_own() -> None:
    staging = Staging.onto(CPU)
    staging(np.arange(4))
    other = pickle.loads(pickle.dumps(staging))
    assert (other.device, other._turns) == (CPU, {})
    assert other(np.arange(4)).tolist() == [0, 1, 2, 3]
