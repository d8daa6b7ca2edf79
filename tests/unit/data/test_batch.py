"""A Batch is a sequence of rows over columns, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from error_texts import raises

from rlframe.data import Batch, Row


def make() -> Batch:
    return Batch(obs=np.arange(6.0).reshape(3, 2), action=torch.arange(3), inner=Batch(x=np.arange(3) * 10))


def test_is_a_sequence_of_rows() -> None:
    batch = make()
    assert isinstance(batch, Sequence) and len(batch) == 3
    rows = list(batch)
    assert len(rows) == 3 and isinstance(rows[0], Row)
    assert list(rows[1]) == ['obs', 'action', 'inner'] and len(rows[1]) == 3
    np.testing.assert_array_equal(rows[1]['obs'], [2, 3])
    assert rows[1]['inner']['x'] == 10 and rows[1]['action'] == 1
    assert batch[-1]['inner']['x'] == 20
    with pytest.raises(TypeError, match=r'Batch\.replace\(reward='):
        rows[0]['reward'] = 1.0
    for i in (3, -4):
        with pytest.raises(IndexError, match='Batch of 3'):
            batch[i]


@pytest.mark.parametrize(
    'index', [slice(1, 3), np.array([1, 2]), np.array([False, True, True]), np.array([-2, -1])]
)
def test_slices_masks_and_integers_give_batches(index: object) -> None:
    part = make()[torch.as_tensor(index) if isinstance(index, np.ndarray) else index]
    assert isinstance(part, Batch) and len(part) == 2
    np.testing.assert_array_equal(part['obs'], [[2, 3], [4, 5]])
    assert part['action'].tolist() == [1, 2] and part['inner']['x'].tolist() == [10, 20]


def test_an_unknown_column_names_the_nearest_one() -> None:
    for thing in (make(), make()[0]):
        with pytest.raises(KeyError, match="Did you mean 'action'"):
            thing['acton']
    assert 'obs' in make() and 'acton' not in make()


def test_columns_need_one_length() -> None:
    with raises(ValueError):
        Batch(a=np.zeros(2), b=np.zeros(3))
    with raises(ValueError):
        Batch()


def test_from_rows_undoes_iterating() -> None:
    batch = make()
    again = Batch.from_rows(list(batch))
    np.testing.assert_array_equal(again['obs'], batch['obs'])
    assert torch.equal(again['action'], batch['action'])
    np.testing.assert_array_equal(again['inner']['x'], batch['inner']['x'])


def test_from_rows_stacks_numbers_and_refuses_different_names() -> None:
    batch = Batch.from_rows([{'r': 0.5, 'n': 1, 'd': True}, {'r': 1.5, 'n': 2, 'd': False}])
    assert batch['r'].dtype == np.float32 and batch['n'].dtype.kind == 'i' and batch['d'].dtype == bool
    with raises(ValueError):
        Batch.from_rows([{'r': 1}, {'s': 1}])
    with raises(ValueError):
        Batch.from_rows([])


def test_cat_joins_end_to_end_and_stack_along_a_new_axis() -> None:
    batch = make()
    both, stacked = Batch.cat([batch, batch[:1]]), Batch.stack([batch, batch])
    assert len(both) == 4 and both['inner']['x'].tolist() == [0, 10, 20, 0]
    assert both['action'].tolist() == [0, 1, 2, 0]
    assert len(stacked) == 2 and stacked['obs'].shape == (2, 3, 2) and stacked['inner']['x'].shape == (2, 3)
    for join in (Batch.cat, Batch.stack):
        with raises(ValueError):
            join([])
        with raises(ValueError):
            join([batch, Batch(obs=batch['obs'])])


def test_replace_shares_the_other_columns_and_leaves_the_original() -> None:
    batch = make()
    changed = batch.replace(obs=np.zeros((3, 1)), more=np.ones(3))
    assert changed['inner'] is batch['inner'] and list(changed.keys()) == ['obs', 'action', 'inner', 'more']
    assert batch['obs'].shape == (3, 2) and 'more' not in batch
    with raises(ValueError):
        batch.replace(obs=np.zeros(2))


def test_map_and_to_reach_nested_columns() -> None:
    batch = make()
    assert batch.map(lambda c: c * 0)['inner']['x'].tolist() == [0, 0, 0]
    tensors = batch.to('cpu')
    assert isinstance(tensors['inner']['x'], torch.Tensor)
    batch['obs'][0, 0] = 99
    assert tensors['obs'][0, 0] == 99, 'on the CPU numpy arrays are wrapped, not copied'


def test_repr_shows_names_types_and_shapes_and_nbytes_counts_all() -> None:
    batch = make()
    assert 'obs: float64[3, 2]' in repr(batch) and 'inner: Batch(x: int64[3])' in repr(batch)
    assert batch.nbytes() == 48 + 24 + 24
    assert 'action' in repr(batch[0])
