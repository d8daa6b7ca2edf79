"""What is saved comes back equal and of the same type, or is refused by its place."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlframe.errors import CheckpointError
from rlframe.run.checkpoint_tree import Encoder, decode, to_json
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint


def there_and_back(value: Any) -> Any:
    encoder = Encoder()
    text = to_json(encoder.tree(value))
    return decode(json.loads(text, parse_constant=pytest.fail), encoder.arrays)


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other) and [type(k) for k in one] == [type(k) for k in other]
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        raw = [t.contiguous().unsqueeze(-1).view(torch.uint8) for t in (one, other) if t.numel()]
        assert not raw or torch.equal(*raw)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, float):
        assert repr(one) == repr(other)
    else:
        assert one == other


strided = torch.arange(24.0).reshape(4, 6)
VALUES: dict[str, Any] = {
    'nothing': [None, True, False, 0, -1, '', 'text', [], {}, ()],
    'ints': [2**63, -(2**64), 2**1000],
    'floats': [0.0, -0.0, 0.1, 1e-320, 1.7e308, math.inf, -math.inf, math.nan],
    'text': ['\udc80 alone', '\U0001f600', 'a"b\\c\n\0', 'ä'],
    'tuples': (1, (2, [3, (4,)]), ()),
    'names': {0: 'a', 1: {True: 'b'}, '0': 'c', '': 'd', 'x.y': 'e', '\udc80': np.ones(1)},
    'marks': {'__tensor__': 'no', 'other': {'__array__': np.ones(1)}, 'more': {'__pairs__': [1]}},
    'a mark alone': [{'__tuple__': []}, {'__float__': 'nan'}, {'__rows__': 0}, {'__metadata__': np.ones(2)}],
    'same names': {'a.b': torch.zeros(1), 'a': {'b': torch.ones(1)}, 'a.b.': np.ones(2)},
    'arrays': [np.array(3.5), np.empty((0, 3), np.int16), np.ones(3, bool), np.arange(6)[::2], np.ones((2, 3)).T],
    'types': [np.arange(3).astype(t) for t in ['b', 'i1', 'i8', 'u1', 'u8', 'f2', 'f8', 'c8', 'c16', 'g', '>f4', '<U5', 'S3', 'M8[s]']],
    'texts in arrays': [np.array(['a', '\u20ac']), np.array('alone'), np.array([], 'U4'), np.zeros((2, 0), 'c16')],
    'nan in arrays': np.array([math.nan, math.inf, -0.0]),
    'tensors': [torch.tensor(2), torch.empty(0, 2), torch.ones(2, dtype=torch.bool), strided[:, ::2], strided.T],
    'rare tensors': [
        torch.randn(3).to(torch.bfloat16),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty(0, 3, dtype=torch.bfloat16),
        torch.randn(2, 2, dtype=torch.complex64),
        torch.randn(3, dtype=torch.complex128),
        torch.ones(2).to(torch.float8_e4m3fn),
        torch.arange(3).to(torch.uint16),
    ],
}  # fmt: skip


@pytest.mark.parametrize('name', VALUES)
def test_values_come_back_of_the_same_type_through_the_tree_and_the_disk(name: str, tmp_path: Path) -> None:
    assert_equal(there_and_back(VALUES[name]), VALUES[name])
    state, _ = load_checkpoint(save_checkpoint(tmp_path / 'saved', {'value': VALUES[name]}))
    assert_equal(state, {'value': VALUES[name]})


def test_what_only_looks_different_comes_back_as_its_plain_form() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    shared = [strided, strided[0], strided[:, 0]]
    conjugate = torch.tensor([1 + 2j]).conj()
    assert_equal(there_and_back(parameter), torch.ones(2))
    assert_equal(there_and_back(shared), shared)
    assert_equal(there_and_back(conjugate), torch.tensor([1 - 2j]))
    scalars = [np.float32(0.5), np.int8(3), np.bool_(True), np.str_('s'), np.float64('nan')]
    assert_equal(there_and_back(scalars), [0.5, 3, True, 's', math.nan])
    assert_equal(there_and_back(OrderedDict(a=1)), {'a': 1})
    assert_equal(there_and_back({np.int64(3): 1}), {3: 1})


def test_arrays_are_not_copied_unless_they_must_be() -> None:
    encoder, array, tensor = Encoder(), np.ones(5), torch.ones(5)
    encoder.tree({'array': array, 'tensor': tensor})
    assert encoder.arrays['array'] is array or np.shares_memory(encoder.arrays['array'], array)
    assert np.shares_memory(encoder.arrays['tensor'], tensor.numpy())


loop: list[Any] = []
loop.append(loop)
deep: Any = []
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize(
    'value',
    [
        {'a': [1, object()]},
        {'a': {'b': {1, 2}}},
        {'a': b'bytes'},
        {'a': lambda: 0},
        {'a': np.array([None])},
        {'a': np.zeros(2, 'i4,f8')},
        {'a': np.ma.ones(2)},
        {'a': torch.eye(2).to_sparse()},
        {'a': torch.empty(2, device='meta')},
        {'a': {1.5: 2}},
        {'a': {(1, 2): 2}},
        {'a': 1j},
        {'a': 10**5000},
        {'a': loop},
        {'a': deep},
    ],
)
def test_what_cannot_be_saved_is_refused_by_its_place_and_nothing_is_written(
    value: Any, tmp_path: Path
) -> None:
    with raises(CheckpointError):
        save_checkpoint(tmp_path / 'saved', value)
    assert list(tmp_path.iterdir()) == []


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(st.characters(codec=None), max_size=6)
    | st.builds(lambda n: np.arange(n), st.integers(0, 4))
    | st.builds(lambda n: torch.arange(float(n)), st.integers(0, 4))
)
names = st.text(max_size=3) | st.integers(-2, 2) | st.sampled_from(['__tensor__', '__pairs__', 'a', 'a.0'])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees)
def test_every_tree_comes_back(tree: Any) -> None:
    assert_equal(there_and_back(tree), tree)


def test_an_array_stands_at_one_place_so_that_a_short_file_takes_no_more_memory_than_it_has() -> None:
    arrays = {'a': np.zeros(10)}
    fields = {f'f{i}': {'__array__': 'a'} for i in range(3)}
    for tree in ({'__fields__': fields, 'axes': 1}, {'x': {'__array__': 'a'}, 'y': {'__tensor__': 'a'}}):
        with pytest.raises((ValueError, KeyError), match="'a'"):
            decode(tree, arrays)
    assert decode({'x': {'__array__': 'a'}}, arrays)['x'] is arrays['a']
