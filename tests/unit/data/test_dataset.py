"""Every pass over recorded data visits every row once, whatever form the data have, and can be taken up in its middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.data.data_checks import check_batch
from rlframe.data.dataset import check_source, open_data
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
    'loader': lambda folder: loader(),
    'rows': lambda folder: [{'obs': o, 'action': a} for o, a in zip(*COLUMNS.values(), strict=True)],
    'named function': lambda folder: f'{__name__}:make_pairs',
    'named columns': lambda folder: f'{__name__}:COLUMNS',
}


@pytest.mark.parametrize(
    ('space', 'obs', 'words'),
    [
        (
            spaces.Box(0, 1, (2, 2, 1), np.float32),
            np.full((3, 2, 2, 1), [[[[0]]], [[[1]]], [[[255]]]]),
            'divide pixels',
        ),
        (
            spaces.Box(0, 255, (2, 2, 1), np.uint8),
            np.full((3, 2, 2, 1), [[[[0]]], [[[1]]], [[[-1]]]]),
            'int64 in .-1, 1',
        ),
        (spaces.Discrete(3, start=1), np.array([1, 3, 0]), r'int64 in \[1, 3\]'),
    ],
)
def test_pixels_and_classes_out_of_bounds_are_named_by_their_row(space: Any, obs: Any, words: str) -> None:
    spec = EnvSpec(space, SPEC.action_space, name='Toy')
    data = {'obs': obs, 'action': np.ones(3, np.int64)}
    with pytest.raises(ConfigError, match=f'row 2 of the data: obs is out of bounds.*{words}'):
        check_source(open_data(data, 'x'), spec, 'x')
    check_source(open_data({name: column[:2] for name, column in data.items()}, 'x'), spec, 'x')


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


@pytest.mark.parametrize(
    'data', [None, 'data.csv', 'nothing.npz', 'half.npz', 'pickles.npz', 'no_module:name', [1, 2, 3]]
)
def test_what_is_no_data_is_refused(data: Any, cwd: Path) -> None:
    np.savez('half.npz', obs=np.zeros(3))
    np.savez('pickles.npz', obs=np.array([{}], object), action=np.zeros(1))
    with raises(ConfigError):
        next(open_data(data).batches(2, np.random.default_rng(0)))


SPEC = EnvSpec(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3, start=1), name='Toy')


def columns(count: int = 6) -> dict[str, np.ndarray]:
    return {'obs': np.zeros((count, 2), np.float32), 'action': np.ones(count, np.int64)}


@pytest.mark.parametrize(
    ('space', 'actions', 'row'),
    [
        (spaces.Discrete(3, start=1), [1, 2, 3, 0, 4], 3),
        (spaces.Discrete(3), [0.0, 1.5, 2.0], 1),
        (spaces.MultiDiscrete([2, 3]), [[1, 2], [1, 3], [2, 0]], 1),
        (
            spaces.Box(np.array([-1, -1], np.float32), np.array([1, 2], np.float32)),
            [[1, 2], [-1, -1], [0, np.nan], [2, 2]],
            2,
        ),
    ],
)
def test_action_outside_the_space_is_named_by_its_row(space: Any, actions: Any, row: int) -> None:
    spec = EnvSpec(SPEC.observation_space, space, name='Toy')
    action = np.array(actions)
    batch = {'obs': np.zeros((len(action), 2), np.float32), 'action': action}
    with raises(ConfigError):
        check_source(open_data(batch, 'x'), spec, 'x')
    good = {name: column[:row] for name, column in batch.items()}
    check_source(open_data(good, 'x'), spec, 'x')


def test_an_end_mark_that_is_no_flag_is_named_by_its_row() -> None:
    marks = {'terminated': np.array([0, 1, 2, 0, 3, 0])}
    with pytest.raises(ConfigError, match=r'row 2 of the data: terminated is 2 .and 1 more.*expected 0 or 1'):
        check_source(open_data(columns() | marks, 'x'), SPEC, 'x')


def test_bounds_are_of_the_type_of_the_space() -> None:
    spec = EnvSpec(SPEC.observation_space, spaces.Box(-1.1, 1.1, (1,), np.float32), name='Toy')
    check_source(open_data({'obs': np.zeros((1, 2)), 'action': np.array([[1.1]])}), spec, 'x')


def test_rows_that_are_read_one_by_one_are_checked_when_they_are_read() -> None:
    data = columns()
    data['obs'][4, 1] = np.inf
    rows = [(data['obs'][i], data['action'][i]) for i in range(6)]
    source = open_data(rows, 'x')
    check_source(source, SPEC, 'x')
    with raises(ConfigError):
        list(source.batches(2, np.random.default_rng(0)))


def test_batches_of_a_loader_are_checked_and_counted() -> None:
    data = columns()
    data['action'][5] = 9
    loader = [{name: column[i : i + 2] for name, column in data.items()} for i in (0, 2, 4)]
    source = open_data(iter(loader), 'x')
    check_source(source, SPEC, 'x')
    with raises(ConfigError):
        list(source.batches(2, np.random.default_rng(0)))


@pytest.mark.parametrize('form', ['columns', 'rows'])
def test_pixels_in_0_to_1_for_an_env_of_whole_numbers_are_refused(form: str) -> None:
    space = spaces.Dict(camera=spaces.Box(0, 255, (2, 2, 3), np.uint8), speed=spaces.Box(0, 1, (1,)))
    spec = EnvSpec(space, spaces.Discrete(2), name='Toy')
    dtype = np.dtype([('camera', np.float32, (2, 2, 3)), ('speed', np.float32, (1,))])
    obs = np.zeros(4, dtype)
    obs['speed'] = 0.5
    obs['camera'] = 17.0
    check_batch(Batch(obs=obs, action=np.zeros(4, int)), spec, 'here')
    obs['camera'][2] = 17 / 255
    batch = Batch(obs=obs, action=np.zeros(4, int))
    rows = np.arange(10, 14) if form == 'rows' else None
    with raises(ConfigError):
        check_batch(batch, spec, 'here', rows)
