"""Recorded data are the same rows in every format, in memory and on disk; what cannot be read is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.data.data_checks import check_spec
from rlframe.data.dataset import Selection, check_source, open_data
from rlframe.data.formats import FORMATS, check_target, read_recording, write_recording
from rlframe.data.observation import bounds_of, laid_out, obs_dtype
from rlframe.data.recorder import EpisodeRecorder
from rlframe.data.recording import Recording, facts_of_spec, spec_of_data
from rlframe.data.sources import BlockSource
from rlframe.errors import ConfigError

LENGTHS = (3, 1, 4, 2, 5)
SPEC = EnvSpec(spaces.Box(-100, 100, (2,), np.float32), spaces.Discrete(4), name='Toy')
WRITTEN = {'npz': 'data.npz', 'parquet': 'data.parquet', 'minari': 'data'}
ON_DISK = 1e-9
"""GiB that no data fit into."""


def recording(lengths: tuple[int, ...] = LENGTHS, spec: EnvSpec = SPEC) -> Recording:
    """Returns episodes whose observations are (episode, step), and whose rewards are the episode's number."""
    episode = np.repeat(np.arange(len(lengths)), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    last = np.append(episode[1:] != episode[:-1], True)
    columns = {
        'obs': np.stack([episode, step], 1).astype(np.float32),
        'next_obs': np.stack([episode, step + 1], 1).astype(np.float32),
        'action': step % 4,
        'reward': episode.astype(np.float32),
        'terminated': last & (episode % 2 == 0),
        'truncated': last & (episode % 2 == 1),
        'episode': episode,
    }
    facts = {'env': {'env_id': 'Toy'}, 'spec': facts_of_spec(spec), 'seeds': list(range(len(lengths)))}
    return Recording(columns, facts, 'made', 'made')


def written(name: str, folder: Path, given: Recording | None = None) -> Path:
    if package := FORMATS[name].package:
        pytest.importorskip(package)
    return write_recording(given or recording(), folder / WRITTEN[name])


@pytest.mark.parametrize('memory', [1.0, ON_DISK])
@pytest.mark.parametrize('name', WRITTEN)
def test_data_are_read_as_they_were_written(name: str, memory: float, tmp_path: Path) -> None:
    read = read_recording(written(name, tmp_path), limit=memory)
    assert read.digest() == recording().digest() == read.facts['sha256']
    assert read.is_in_memory == (memory == 1.0)
    spec = read.spec()
    assert spec is not None and spec.action_space == SPEC.action_space
    assert read.facts['seeds'] == [0, 1, 2, 3, 4]
    episodes = read.episodes()
    assert episodes.length.tolist() == [*LENGTHS]
    assert episodes.return_.tolist() == [0, 1, 8, 6, 20]
    assert episodes.terminated.tolist() == [True, False, True, False, True]
    assert episodes.truncated.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize('name', WRITTEN)
def test_observations_with_parts_are_kept(name: str, tmp_path: Path) -> None:
    space = spaces.Dict(camera=spaces.Box(0, 255, (2, 2), np.uint8), place=spaces.Discrete(9))
    spec = dataclasses.replace(SPEC, observation_space=space)
    given = recording(spec=spec)
    obs = np.zeros(len(given), [('camera', np.uint8, (2, 2)), ('place', np.int64)])
    obs['camera'] = given.columns['obs'][:][:, 1][:, None, None]
    obs['place'] = given.columns['obs'][:][:, 0]
    next_obs = obs.copy()
    next_obs['camera'] += 1
    given = dataclasses.replace(given, columns={**given.columns, 'obs': obs, 'next_obs': next_obs})
    read = read_recording(written(name, tmp_path, given))
    np.testing.assert_array_equal(read.columns['obs'][:]['camera'], obs['camera'])
    np.testing.assert_array_equal(read.columns['next_obs'][:]['place'], next_obs['place'])


@pytest.mark.parametrize('memory', [1.0, ON_DISK])
@pytest.mark.parametrize('name', WRITTEN)
def test_parts_of_observations_are_laid_out_as_those_of_the_env(
    name: str, memory: float, tmp_path: Path
) -> None:
    inner = spaces.Dict(a=spaces.Box(-9, 9, (2,), np.float32), b=spaces.Discrete(9))
    space = spaces.Dict(flag=spaces.MultiBinary(3), inner=inner)
    spec = dataclasses.replace(SPEC, observation_space=space)
    given = recording(spec=spec)
    obs = np.zeros(len(given), [('inner', [('b', np.int64), ('a', np.float32, (2,))]), ('flag', np.int8, 3)])
    obs['inner']['a'] = given.columns['obs'][:]
    obs['inner']['b'] = given.columns['obs'][:][:, 1]
    if name == 'minari':
        obs = laid_out(obs, obs_dtype(space)[0])  # it has them by name
    columns = {**given.columns, 'obs': obs, 'next_obs': obs}
    source = open_data(
        str(written(name, tmp_path, dataclasses.replace(given, columns=columns))),
        'x',
        Selection(memory=memory),
    )
    check_source(source, spec, 'x')
    for batch in source.batches(4, np.random.default_rng(0)):
        assert batch['obs'].dtype == batch['next_obs'].dtype == obs_dtype(space)[0]
        assert batch['obs'].dtype.isalignedstruct
        np.testing.assert_array_equal(batch['obs']['inner']['a'][:, 0], batch['reward'])
    with pytest.raises(ConfigError, match='in the column obs a row has other parts'):
        check_source(source, dataclasses.replace(spec, observation_space=spaces.Dict(inner=inner)), 'x')


@pytest.mark.parametrize('name', WRITTEN)
def test_columns_that_only_we_know_are_kept(name: str, tmp_path: Path) -> None:
    given = recording()
    prob = np.linspace(0, 1, len(given), dtype=np.float32)
    given = dataclasses.replace(given, columns={**given.columns, 'action_prob': prob})
    read = read_recording(written(name, tmp_path, given))
    assert read.digest() == given.digest() == read.facts['sha256']


@pytest.mark.parametrize('listed', [7, [[1]], ['obs'], ['nothing']])
def test_columns_among_infos_that_cannot_be_there_are_refused(listed: Any, tmp_path: Path) -> None:
    given = recording()
    given = dataclasses.replace(given, facts={**given.facts, 'infos': listed})
    path = written('minari', tmp_path, given)
    with pytest.raises(ConfigError, match='data'):
        read_recording(path)


@pytest.mark.parametrize(
    ('path', 'format_'), [('data.npz', 'parquet'), ('data', 'npz'), ('data.parquet', 'minari')]
)
def test_a_format_that_the_ending_of_the_path_contradicts_is_refused(path: str, format_: str) -> None:
    with pytest.raises(ConfigError, match=r'would be read as .* and is to be written as'):
        check_target(Path(path), format_)


@pytest.mark.parametrize(
    ('obs', 'action', 'space', 'words'),
    [
        ((15, 3), (15,), SPEC.action_space, None),
        ((15, 3), (15, 1), SPEC.action_space, None),
        ((15, 2, 2), (15,), SPEC.action_space, 'env.frame_stack=2'),
        ((15, 2), (15, 4), SPEC.action_space, 'one-hot'),
        ((15, 2), (15,), spaces.Box(-1, 1, (1,), np.float32), 'action.reshape'),
        ((15, 2), (15,), spaces.MultiDiscrete([4]), None),
    ],
)
def test_the_nearest_reading_is_of_the_column_that_does_not_fit(
    obs: tuple[int, ...], action: tuple[int, ...], space: Any, words: str | None
) -> None:
    columns = {'obs': np.zeros(obs, np.float32), 'action': np.zeros(action, np.float32)}
    with pytest.raises(ConfigError) as caught:
        check_spec(columns, None, dataclasses.replace(SPEC, action_space=space), 'x')
    assert caught.value.remedy == '' if words is None else words in caught.value.remedy


@pytest.mark.parametrize('memory', [1.0, ON_DISK])
def test_next_observations_of_a_flat_file_are_those_of_the_following_rows(
    memory: float, tmp_path: Path
) -> None:
    """As in D4RL: the last row of an episode that was cut off has none, and is left out."""
    h5py = pytest.importorskip('h5py')
    names = {'obs': 'observations', 'action': 'actions', 'reward': 'rewards', 'terminated': 'terminals'}
    given = recording()
    with h5py.File(tmp_path / 'flat.hdf5', 'w') as file:
        for ours, theirs in {**names, 'truncated': 'timeouts'}.items():
            file[theirs] = given.columns[ours][:]
        file['infos/goal'] = np.zeros(3)
    read = read_recording(tmp_path / 'flat.hdf5', limit=memory)
    kept = ~given.columns['truncated'][:]
    for name in ('obs', 'next_obs', 'action', 'reward', 'terminated'):
        expected = given.columns[name][:][kept]
        if name == 'next_obs':
            ends = given.columns['terminated'][:][kept]
            expected = np.where(
                ends[:, None], given.columns['obs'][:][kept], expected
            )  # nobody asks for them
        np.testing.assert_array_equal(read.columns[name][:], expected, name)
    episodes = read.episodes()
    assert episodes.length.tolist() == [3, 4, 1, 5] and episodes.truncated.tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_a_file_of_ding_is_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip('h5py')
    given = recording()
    done = given.columns['terminated'][:] | given.columns['truncated'][:]
    with h5py.File(tmp_path / 'x_demos.hdf5', 'w') as file:
        for name in ('obs', 'next_obs'):
            file[name] = given.columns[name][:]
        file['action'] = given.columns['action'][:][:, None]
        file['reward'] = given.columns['reward'][:][:, None]
        file['done'] = done
    source = open_data(str(tmp_path / 'x_demos.hdf5'))
    check_source(source, SPEC, 'x')
    batch = next(source.batches(15, np.random.default_rng(0)))
    assert batch['action'].shape == (15,) and batch['terminated'].sum() == 5 and not batch['truncated'].any()


def test_done_of_a_row_that_is_truncated_is_no_terminal_state(tmp_path: Path) -> None:
    done, cut = np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1])
    rows = {'obs': np.zeros((4, 2)), 'action': np.zeros(4, int), 'reward': np.ones(4)}
    np.savez(tmp_path / 'x.npz', **rows, dones=done, timeouts=cut)
    read = read_recording(tmp_path / 'x.npz').columns
    assert read['terminated'][:].tolist() == [False, True, False] and read['truncated'][2]


# sources


def rows_of(source: Any, size: int, seed: int = 0, skip: int = 0) -> list[list[tuple[float, ...]]]:
    batches = source.batches(size, np.random.default_rng(seed), skip)
    return [[tuple(row) for row in batch['obs'].tolist()] for batch in batches]


@pytest.mark.parametrize('window', [1, 2, 3, 100])
@pytest.mark.parametrize('size', [1, 4, 7, 40])
def test_a_pass_over_rows_on_disk_visits_each_once_and_is_taken_up_anywhere(
    window: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('rlframe.data.sources.ROWS_OF_A_BLOCK', 2)
    read = read_recording(written('npz', tmp_path), limit=ON_DISK)
    nbytes = 2 * 8 * 2 + 8 + 4 + 2 + 8
    source = BlockSource(read.columns, np.array([[0, 4], [6, 15]]), nbytes * 2 * window / 0.75, 'x')
    whole = rows_of(source, size)
    expected = {tuple(row) for row in np.delete(read.columns['obs'][:], [4, 5], 0).tolist()}
    assert len(source) == 13 and [len(batch) for batch in whole[:-1]] == [size] * (len(whole) - 1)
    assert sorted(row for batch in whole for row in batch) == sorted(expected)
    assert rows_of(source, size) == whole
    if window > 1 and size < 40:
        assert rows_of(source, size, 1) != whole
    for skip in range(len(whole) + 1):
        assert rows_of(source, size, skip=skip) == whole[skip:]


def test_mixed_data_have_their_share_of_every_batch(tmp_path: Path) -> None:
    one, other = recording((6, 6)), recording((3, 5, 2))
    for name in ('obs', 'next_obs'):
        other.columns[name][:][:, 0] += 50
    source = open_data([one, other], 'x', Selection(mix=[3, 1]))
    whole = rows_of(source, 8)
    assert len(whole) == 3
    for batch in whole:
        assert sum(place >= 50 for place, _ in batch) == 2
    for skip in range(3):
        assert rows_of(source, 8, skip=skip) == whole[skip:]
    by_rows = rows_of(open_data([one, other], 'x'), 11)
    assert [sum(place >= 50 for place, _ in batch) for batch in by_rows] == [5, 5]


@pytest.mark.parametrize('memory', [1.0, ON_DISK])
def test_the_best_episodes_are_chosen_and_some_kept_apart(memory: float, tmp_path: Path) -> None:
    path = str(written('npz', tmp_path, recording(tuple(range(1, 21)))))

    def episodes(**options: Any) -> set[float]:
        source = open_data(path, 'x', Selection(memory=memory, **options))
        return {place for batch in rows_of(source, 50) for place, _ in batch}

    assert episodes(top=0.1) == {18, 19}
    learned, kept_apart = episodes(held_out=0.25), episodes(held_out=0.25, is_held_out=True)
    assert len(kept_apart) == 5 and learned | kept_apart == {*range(20)} and not learned & kept_apart
    assert episodes(top=0.2, held_out=0.25) == {*sorted(learned)[-3:]}


def test_a_reward_that_is_not_finite_spoils_only_its_own_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('rlframe.data.columns.BLOCK', 4)
    given = recording((3, 6, 2, 4))
    given.columns['reward'][:] = np.where(np.arange(15) == 4, np.nan, 2)
    np.testing.assert_array_equal(given.episodes().return_, [6, np.nan, 4, 8])
    with pytest.raises(ConfigError, match='not finite'):
        open_data(given, 'x', Selection(top=0.5))


def test_a_bad_row_of_chosen_episodes_is_named_by_its_place_in_the_file() -> None:
    given = recording((3, 6, 2, 4))
    given.columns['obs'][12, 0] = np.nan
    source = open_data(given, 'x', Selection(held_out=0.25))
    assert len(source) < 15
    with pytest.raises(ConfigError, match='row 12 of the data: obs'):
        source.check(SPEC, 'x')


def test_a_single_number_in_an_archive_is_no_column(tmp_path: Path) -> None:
    path = spoilt(tmp_path, gamma=np.float32(0.99))
    assert 'gamma' not in read_recording(path).columns


def test_a_place_where_nothing_can_be_written_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match=r'record: .*x\.npz cannot be written as npz'):
        check_target(tmp_path / 'file' / 'x.npz', None, 'policy.collect.record')
    with pytest.raises(ConfigError, match=r'record: x\.pkl may hold a pickle'):
        check_target(Path('x.pkl'), None, 'policy.collect.record')
    check_target(tmp_path / 'new' / 'x.npz', None)


# what is refused


def spoilt(folder: Path, **columns: Any) -> Path:
    np.savez(folder / 'spoilt.npz', **({**recording().columns} | columns))
    return folder / 'spoilt.npz'


@pytest.mark.parametrize(
    ('columns', 'words'),
    [
        ({'reward': np.full(15, np.nan)}, 'row 0 .*reward is nan .and 14 more'),
        (
            {'next_obs': np.where(np.arange(30).reshape(15, 2) == 9, np.inf, 0)},
            r'row 4 .*next_obs is \[ ?0. inf',
        ),
        (
            {'terminated': np.where(np.arange(15) == 3, np.nan, 0)},
            'row 3: terminated is nan, expected 0 or 1',
        ),
        ({'truncated': np.where(np.arange(15) > 12, 0.5, 0)}, 'row 13: truncated is 0.5'),
        ({'action': np.where(np.arange(15) == 7, 9, 0)}, 'row 7 .*not in the action space of Toy'),
        (
            {'terminated': np.zeros(15), 'truncated': np.zeros(15), 'episode': np.zeros(15, int)},
            'no end mark',
        ),
        (
            {'obs': np.zeros((15, 3))},
            r'do not fit Toy: in the column obs .* got .obs float64\[3\].*Box.*\(2,\)',
        ),
        ({'reward': np.zeros((15, 2))}, 'reward has the shape .*one number a row'),
        ({'action': np.array([None] * 15)}, 'the column action .*Python objects'),
        ({'action': np.array(['a'] * 15)}, 'the column action holds <U1, not real numbers'),
        ({'obs': np.zeros((15, 2), complex)}, 'the column obs holds complex128, not real numbers'),
    ],
)
@pytest.mark.parametrize('memory', [1.0, ON_DISK])
def test_spoilt_data_are_named_by_row_and_column(
    columns: dict[str, Any], words: str, memory: float, tmp_path: Path
) -> None:
    path = spoilt(tmp_path, **columns)
    spec = dataclasses.replace(SPEC, max_episode_steps=10)
    with pytest.raises(ConfigError, match=words):
        source = open_data(str(path), 'x', Selection(memory=memory))
        check_source(source, spec, 'x')
        source.check_ends(spec, 'x')


@pytest.mark.parametrize('memory', [1.0, ON_DISK])
def test_numbers_of_the_other_byte_order_are_read(memory: float, tmp_path: Path) -> None:
    given = read_recording(written('npz', tmp_path)).columns
    found = read_recording(spoilt(tmp_path, obs=given['obs'][:].astype('>f8')), limit=memory).columns['obs']
    assert found.dtype.isnative
    np.testing.assert_array_equal(found[:], given['obs'][:])


@pytest.mark.parametrize(
    ('dtype', 'high'), [('bool', 1), ('uint8', 255), ('uint16', 65535), ('int64', 65535)]
)
def test_flags_and_integers_have_a_space(dtype: str, high: float) -> None:
    columns = {'obs': np.zeros((3, 2), dtype), 'action': np.array([True, False, True])}
    spec = spec_of_data(Recording(columns, {}, 'x', 'npz'))
    assert spec.action_space == spaces.Discrete(2)
    assert spec.observation_space.dtype == dtype and (bounds_of(spec.observation_space)[1] >= high).all()


def test_of_several_data_the_spoilt_one_is_named(tmp_path: Path) -> None:
    good = written('npz', tmp_path)
    bad = spoilt(tmp_path, reward=np.full(15, np.nan))
    with pytest.raises(ConfigError, match=r'spoilt\.npz: row 0 of the data: reward is nan'):
        check_source(open_data([str(good), str(bad)], 'x'), SPEC, 'x')


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    for name in ('npz', 'parquet'):
        path = written(name, tmp_path)
        path.write_bytes(path.read_bytes()[:-300])
        with pytest.raises(ConfigError, match=f'{path.name} cannot be read as {name}'):
            read_recording(path)


@pytest.mark.parametrize('name', ['data.pkl', 'data.pt', 'nothing.npz', 'no/such-v0', 'data.csv'])
def test_what_is_no_recorded_data_is_refused(name: str, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(cwd / 'minari'))
    with pytest.raises(ConfigError, match=r'pickle|no such file|no recorded data'):
        read_recording(name)


def test_an_id_of_minari_is_found_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip('minari')
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path))
    write_recording(recording(), tmp_path / 'toy' / 'mine-v0')
    assert len(read_recording('toy/mine-v0')) == 15
    assert minari.load_dataset('toy/mine-v0').total_steps == 15
    with pytest.raises(ConfigError, match="Did you mean 'toy/mine-v0'"):
        read_recording('toy/mine-v1')


def test_a_filter_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match='no episode is left of 5'):
        open_data(recording(), 'x', Selection(held_out=0.95))
    pairs = {'obs': np.zeros((3, 2)), 'action': np.zeros(3)}
    with pytest.raises(ConfigError, match='no end marks'):
        open_data(pairs, 'x', Selection(top=0.5))


# writing


def test_interleaved_steps_are_written_as_whole_episodes_and_taken_up_from_a_checkpoint(
    tmp_path: Path,
) -> None:
    def add(recorder: EpisodeRecorder, start: int, stop: int) -> None:
        for t in range(start, stop):
            env_id = np.array([1, 0, 2] if t % 2 else [0, 1, 2])
            done = t % (env_id + 2) == 0
            place = np.stack([env_id, np.full(3, t)], 1).astype(np.float32)
            recorder.add({'obs': place, 'action': env_id}, env_id, done)

    whole = EpisodeRecorder(tmp_path / 'whole')
    add(whole, 0, 30)
    first = EpisodeRecorder(tmp_path / 'parts')
    add(first, 0, 11)
    state = first.state_dict()
    add(first, 11, 20)
    first.write()
    first.close()
    second = EpisodeRecorder(tmp_path / 'parts')
    second.load_state_dict(state)
    add(second, 11, 30)
    found = second.recording({})
    assert found.digest() == whole.recording({}).digest()
    assert {len({env for env, _ in batch['obs'].tolist()}) for batch in by_episode(found)} == {1}
    second.discard(np.array([0, 1, 2]))
    assert len(second.recording({})) == len(found)
    for recorder in (whole, second):
        recorder.close()


def by_episode(found: Recording) -> list[Batch]:
    episodes = found.episodes()
    ends = (episodes.start + episodes.length).tolist()
    columns = Batch({name: column[:] for name, column in found.columns.items()})
    return [columns[start:stop] for start, stop in zip(episodes.start.tolist(), ends, strict=True)]
