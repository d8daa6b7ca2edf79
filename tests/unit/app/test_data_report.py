"""``rlframe data`` finds what is wrong with recorded data, and names the column and the first row."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlframe.app.collect import CollectRequest, collect
from rlframe.app.data_report import data_text, inspect_data
from rlframe.data.formats import read_recording, write_recording
from rlframe.data.recording import Recording
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError


@pytest.fixture(scope='module')
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp('data') / 'pendulum.npz'
    collect(None, CollectRequest(1600, str(path)), env='Pendulum-v1')
    return read_recording(path)


def changed(recording: Recording, folder: Path, facts: dict[str, Any] | None = None, **columns: Any) -> str:
    new = {**recording.columns, **columns}
    kept = {name: column for name, column in new.items() if column is not None}
    given = dataclasses.replace(recording, columns=kept, facts={**recording.facts, **(facts or {})})
    return str(write_recording(given, folder / 'changed.npz'))


def problems(path: str, env: str | None = 'Pendulum-v1') -> list[tuple[str, int | None, str]]:
    return [(each['column'], each['row'], each['text']) for each in inspect_data(path, env)['problems']]


def test_good_data_have_no_problems_and_replay_in_their_env(pendulum: Recording, tmp_path: Path) -> None:
    path = changed(pendulum, tmp_path)
    found = inspect_data(path, 'Pendulum-v1')
    assert (
        not found['problems']
        and '3 episodes that were replayed from their seeds are the same' in found['replayed']
    )
    assert found['episodes']['count'] == 8 and found['episodes']['truncated'] == 8
    assert sum(found['episodes']['histogram']['counts']) == 8
    assert json.loads(json.dumps(found)) == found
    text = data_text(found, 80)
    for words in (
        '1,600 env steps',
        'Box (3,) float32 in [-8, 8]',
        'random, acts at random',
        'no problems found',
        '####',
    ):
        assert words in text


@pytest.mark.parametrize(('shift', 'where', 'words'), [(1, 'before', 'too late'), (-1, 'after', 'too early')])
def test_rewards_at_another_offset_are_noticed_with_and_without_the_env(
    shift: int, where: str, words: str, cwd: Path
) -> None:
    """The rewards of this env are the costs of its actions."""
    collect(None, CollectRequest(1900, 'car.npz'), env='MountainCarContinuous-v0')
    car = read_recording('car.npz')
    assert problems('car.npz', 'MountainCarContinuous-v0') == []
    path = changed(car, cwd, reward=np.roll(car.columns['reward'][:], shift))
    text = f'rewards fit obs and action of the row {where} theirs much better: they seem to lie at another offset'
    assert problems(path, None) == [('reward', None, text)]
    assert any(words in text for *_, text in problems(path, 'MountainCarContinuous-v0'))


def test_rewards_in_another_unit_are_noticed_with_the_env(pendulum: Recording, tmp_path: Path) -> None:
    scaled = changed(pendulum, tmp_path, reward=pendulum.columns['reward'][:] / 10)
    assert any('each is 0.1 times that of the env' in text for *_, text in problems(scaled))


@pytest.mark.parametrize(
    ('name', 'change', 'expected'),
    [
        (
            'obs',
            lambda obs: np.where(np.arange(len(obs))[:, None] == 7, np.nan, obs),
            ('obs', 7, 'not finite'),
        ),
        (
            'action',
            lambda action: np.where(np.arange(len(action))[:, None] == 9, 3, action),
            ('action', 9, 'outside of Box'),
        ),
        ('truncated', np.zeros_like, ('terminated', None, 'no end mark in any row')),
        ('next_obs', lambda obs: np.roll(obs, 1, 0), ('next_obs', 0, 'is not the obs of the next row')),
    ],
)
def test_problems_name_the_column_and_the_first_row(
    name: str, change: Any, expected: tuple[str, int | None, str], pendulum: Recording, tmp_path: Path
) -> None:
    path = changed(pendulum, tmp_path, **{name: change(pendulum.columns[name][:])})
    column, row, words = expected
    assert [(c, r) for c, r, text in problems(path, None) if words in text] == [(column, row)]


def test_one_row_and_next_observations_of_another_shape_are_described(
    pendulum: Recording, tmp_path: Path
) -> None:
    one = changed(pendulum, tmp_path, **{name: column[:1] for name, column in pendulum.columns.items()})
    assert inspect_data(one)['rows'] == 1
    found = problems(changed(pendulum, tmp_path, next_obs=pendulum.columns['next_obs'][:, :2]), None)
    assert found == [('next_obs', None, 'a row has another shape than one of obs')]


def test_arrays_that_were_changed_are_noticed(pendulum: Recording, tmp_path: Path) -> None:
    path = changed(pendulum, tmp_path)
    arrays = dict(np.load(path))
    arrays['reward'][3] += 1
    np.savez(path, **arrays)
    assert ('all', None, 'these are not the arrays that were written') in problems(path, None)
    assert inspect_data(path)['sha256'] != pendulum.digest()


def test_time_limits_that_are_marked_as_terminal_are_noticed(pendulum: Recording, tmp_path: Path) -> None:
    flags = {'terminated': pendulum.columns['truncated'][:], 'truncated': np.zeros(len(pendulum), bool)}
    path = changed(pendulum, tmp_path, **flags)
    assert any('these are probably time limits' in text for *_, text in problems(path, None))


def test_data_of_another_env_show_both_spaces_and_how_they_could_be_read(
    pendulum: Recording, tmp_path: Path
) -> None:
    path = changed(pendulum, tmp_path)
    with pytest.raises(
        ConfigError,
        match=r'data of Pendulum-v1 do not fit CartPole-v1: in the column obs .*Box\(-2.0, 2.0.*Discrete\(2\)',
    ):
        inspect_data(path, 'CartPole-v1')
    stacked = np.repeat(pendulum.columns['obs'][:][:, None], 4, 1)
    path = changed(pendulum, tmp_path, obs=stacked, next_obs=stacked)
    with pytest.raises(ConfigError, match=r'env\.frame_stack=4'):
        inspect_data(path, 'Pendulum-v1')


def test_the_verb_draws_and_says_by_its_exit_code_whether_something_is_wrong(
    pendulum: Recording, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(pendulum, cwd)
    assert main(['data', path, '--out', 'returns.png']) == 0
    assert 'no problems found' in capsys.readouterr().out and Path('returns.png').stat().st_size > 1000
    spoilt = changed(pendulum, cwd, reward=np.full(len(pendulum), np.nan, np.float32))
    assert main(['data', spoilt, '--json']) == 1
    assert json.loads(capsys.readouterr().out)['problems'][0]['column'] == 'reward'
    assert main(['data', 'nothing.npz']) == 2
