"""Every pass over recorded data visits every row once, whatever form the data have, and can be taken up in its middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlframe.data import Batch
from rlframe.data.dataset import open_data
from rlframe.errors import ConfigError

COLUMNS = {'obs': np.arange(60, dtype=np.float32).reshape(20, 3), 'action': np.arange(20)}


class Pairs(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(COLUMNS['obs'][i]), i


def loader() -> Any:
    return torch.utils.data.DataLoader(Pairs(), batch_size=6, shuffle=True)


def make_pairs() -> Pairs:
    return Pairs()


FORMS = {
    'npz': lambda folder: str(folder / 'data.npz'),
    'batch': lambda folder: Batch(COLUMNS),
    'mapping': lambda folder: COLUMNS,
    'torch data set': lambda folder: Pairs(),
    'loader': lambda folder: loader(),
    'rows': lambda folder: [{'obs': o, 'action': a} for o, a in zip(*COLUMNS.values(), strict=True)],
    'named function': lambda folder: f'{__name__}:make_pairs',
    'named columns': lambda folder: f'{__name__}:COLUMNS',
}


@pytest.mark.parametrize('form', FORMS)
def test_each_pass_visits_every_row_once_in_an_order_of_its_own(form: str, tmp_path: Path) -> None:
    np.savez(tmp_path / 'data.npz', **COLUMNS)
    source, rng = open_data(FORMS[form](tmp_path)), np.random.default_rng(0)
    torch.manual_seed(0)
    orders = []
    for _ in range(2):
        batches = list(source.batches(6, rng))
        assert [len(batch) for batch in batches] == [6, 6, 6, 2]
        for batch in batches:
            np.testing.assert_array_equal(batch['obs'][:, 0], 3 * batch['action'])
        orders.append(np.concatenate([batch['action'] for batch in batches]).tolist())
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(20)) and orders[0] != orders[1]
    rng, whole = np.random.default_rng(0), orders[0]
    torch.manual_seed(0)
    rest = [row for batch in source.batches(6, rng, skip=2) for row in batch['action'].tolist()]
    assert rest == whole[12:]
    source.close()


@pytest.mark.parametrize('data', [None, 3, 'data.csv', ''])
def test_what_is_no_data_is_refused(data: Any) -> None:
    with pytest.raises(ConfigError, match=r'policy\.collect\.collector\.data.*npz'):
        open_data(data)


def test_missing_files_columns_modules_and_bad_items_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'no such file: .*nothing\.npz'):
        open_data('nothing.npz')
    np.savez(tmp_path / 'x.npz', obs=np.zeros(3))
    with pytest.raises(ConfigError, match='no column action'):
        open_data(tmp_path / 'x.npz')
    with pytest.raises(ConfigError, match="cannot import 'no_module:name'"):
        open_data('no_module:name')
    with pytest.raises(ConfigError, match='a pair'):
        next(open_data([1, 2, 3]).batches(2, np.random.default_rng(0)))


def test_an_npz_that_holds_pickles_is_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / 'x.npz', obs=np.array([{}], object), action=np.zeros(1))
    with pytest.raises(ConfigError, match='plain arrays'):
        open_data(tmp_path / 'x.npz')
