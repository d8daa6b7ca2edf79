"""Laws of staging: what arrives is what was given, and shares no memory with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.data import Batch
from rlframe.data.staging import Staging
from rlframe.data.timestep import to_tensor

CPU = torch.device('cpu')
FIELDS = np.dtype({'names': ['image', 'speed'], 'formats': [('u1', (3, 2)), '<f4']}, align=True)
TYPES = ('f2', 'f4', 'f8', 'u1', 'u2', 'u4', 'i1', 'i4', 'i8', '?', 'c8')


@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_what_arrives_is_what_was_given(data: st.DataObject) -> None:
    staging, given_, got = Staging(CPU), [], []
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
    staging = Staging(CPU)
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
    staging, tensor = Staging(CPU), torch.arange(40.0)
    assert staging(tensor) is tensor
    assert staging(tensor[:16]).data_ptr() == tensor.data_ptr()
    moved = staging(tensor[1:17])
    assert torch.equal(moved, tensor[1:17])
    assert moved.data_ptr() != tensor[1:].data_ptr()


def test_changing_an_array_or_a_tensor_afterwards_changes_nothing_else() -> None:
    staging, array = Staging(CPU), np.arange(6.0)
    first = staging(array)
    array[:] = 9
    second = staging(array)
    second[:] = 7
    assert first.tolist() == [0, 1, 2, 3, 4, 5]
    assert staging(array).tolist() == [9] * 6


def test_rows_of_a_larger_tensor_are_written_in_place() -> None:
    staging, ring = Staging(CPU), torch.zeros(6, 2, dtype=torch.uint8)
    staging.copy(np.full((3, 2), 5, np.uint8), ring[2:5])
    assert ring[:, 0].tolist() == [0, 0, 5, 5, 5, 0]


def test_what_was_staged_while_acting_can_be_learned_from() -> None:
    staging = Staging(CPU)
    with torch.inference_mode():
        staging(np.ones((4, 3), np.float32))
    network = torch.nn.Linear(3, 1)
    network(staging(np.ones((4, 3), np.float32))).sum().backward()
    assert network.weight.grad is not None
