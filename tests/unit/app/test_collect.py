"""``rlframe collect`` records whole episodes that start from known seeds, with the actions and rewards of the env."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlframe
from rlframe.app.collect import CollectRequest, collect, collect_replay
from rlframe.data.formats import read_recording
from rlframe.data.recording import Recording
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError

SMALL: dict[str, Any] = {
    'env.collector_env_num': 3,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'policy.eval.evaluator.eval_freq': 10_000,
    'policy.model.encoder_hidden_size_list': [8],
}


@pytest.fixture(scope='module', params=['cartpole_dqn', 'pendulum_sac'])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> rlframe.Run:
    folder = tmp_path_factory.mktemp('runs') / request.param
    more = {'policy.learn.update_per_collect': 1, 'policy.learn.batch_size': 32}
    random = {'policy.random_collect_size': 60} if request.param == 'pendulum_sac' else {}
    return rlframe.train(
        request.param, folder=folder, progress=False, overrides=SMALL | more | random, max_env_step=900
    )


def replayed(found: Recording, episode: int) -> None:
    """Checks an episode against the env, from its seed."""
    env = gymnasium.make(found.facts['env']['env_id'])
    episodes = found.episodes()
    start, length = int(episodes.start[episode]), int(episodes.length[episode])
    rows = {name: column[start : start + length] for name, column in found.columns.items()}
    obs = env.reset(seed=found.facts['seeds'][episode])[0]
    for t in range(length):
        np.testing.assert_array_equal(rows['obs'][t], obs)
        obs, reward, terminated, truncated, _ = env.step(rows['action'][t])
        np.testing.assert_array_equal(rows['next_obs'][t], obs)
        assert rows['reward'][t] == np.float32(reward)
        assert (rows['terminated'][t], rows['truncated'][t]) == (terminated, truncated)
    assert terminated or truncated
    env.close()


@pytest.mark.parametrize('explore', [False, True])
def test_recorded_episodes_are_those_of_the_env_from_their_seeds(
    run: rlframe.Run, explore: bool, tmp_path: Path
) -> None:
    result = collect(run.folder, CollectRequest(700, str(tmp_path / 'a.npz'), explore=explore))
    found = read_recording(tmp_path / 'a.npz')
    assert result.rows == len(found) >= 700 and not result.interrupted
    episodes = found.episodes()
    assert (episodes.terminated | episodes.truncated).all()
    assert result.returns == pytest.approx(episodes.return_.tolist(), abs=1e-2)
    for episode in (0, len(episodes.start) // 2, len(episodes.start) - 1):
        replayed(found, episode)
    behaviour = found.facts['behaviour']
    assert behaviour['policy'] == run.config.policy.type and behaviour['run'] == run.folder.name
    assert behaviour['return'] == pytest.approx(episodes.return_.mean(), abs=1e-2)
    again = collect(run.folder, CollectRequest(700, str(tmp_path / 'b.npz'), explore=explore))
    other = collect(run.folder, CollectRequest(700, str(tmp_path / 'c.npz'), explore=explore, seed=1))
    assert again.sha256 == result.sha256 != other.sha256


def test_the_replay_buffer_is_written_as_episodes_with_actions_of_the_env(
    run: rlframe.Run, tmp_path: Path
) -> None:
    collect_replay(run.folder / 'ckpt' / 'latest', CollectRequest(1, str(tmp_path / 'replay.npz')))
    found = read_recording(tmp_path / 'replay.npz')
    assert len(found) >= 890
    rows = {name: column[:] for name, column in found.columns.items()}
    same = rows['episode'][1:] == rows['episode'][:-1]
    np.testing.assert_array_equal(rows['obs'][1:][same], rows['next_obs'][:-1][same])
    done = rows['terminated'] | rows['truncated']
    assert not done[:-1][same].any()
    env = gymnasium.make(found.facts['env']['env_id'])
    assert env.action_space.contains(rows['action'][0]) and np.ptp(rows['action']) > 0
    if run.config.policy.type == 'sac':
        assert np.abs(rows['action']).max() > 1
    with pytest.raises(ConfigError, match='no replay buffer'):
        collect_replay(run.folder / 'ckpt' / 'best', CollectRequest(1, str(tmp_path / 'x.npz')))


@pytest.mark.parametrize('eps', [-0.1, 2.0, float('nan')])
def test_a_share_of_random_actions_that_is_none_is_refused(
    run: rlframe.Run, eps: float, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match='--eps'):
        collect(run.folder, CollectRequest(10, str(tmp_path / 'x.npz'), explore=True, eps=eps))


def test_interrupted_collection_keeps_whole_episodes(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ['collect', '--random', '--env', 'CartPole-v1', '-n', '1e9', '--out', 'data.npz', '--json']

    def stop(rows: int, returns: list[float]) -> None:
        if len(returns) == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('rlframe.entry.collect.Bar.show', lambda self, rows, returns: stop(rows, returns))
        assert main(words) == 130
    facts = json.loads(capsys.readouterr().out)
    assert facts['interrupted'] and facts['episodes'] >= 20
    found = read_recording('data.npz')
    episodes = found.episodes()
    assert len(found) == facts['rows'] and (episodes.terminated | episodes.truncated).all()
    replayed(found, 3)


def test_last_line_says_what_was_recorded_and_what_comes_next(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip('minari')
    assert main(['collect', '--random', '--env', 'CartPole-v1', '-n', '50', '--out', 'data']) == 0
    out = capsys.readouterr().out
    for words in (
        'env steps in',
        '95 % interval',
        'wrote data',
        'data data',
        'train --data data --policy bc',
    ):
        assert words in out


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['--random', '--env', 'CartPole-v1', '--out', 'there.npz'], 'exists'),
        (['--random', '--env', 'CartPole-v1', '--out', 'x', '--format', 'hdf5'], 'only read'),
        (['--random', '--env', 'CartPole-v1', '--out', 'x.pkl'], 'pickle'),
        (['--random', '--env', 'CartPole-v1', '--out', 'x', '-s', '-1'], 'int in'),
        (['no_run', '--out', 'x'], 'no such file'),
        (['no_run', '--replay', '--out', 'x'], 'no such file'),
    ],
)
def test_bad_requests_are_refused_before_anything_is_played(
    words: list[str], message: str, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path('there.npz').touch()
    assert main(['collect', *words]) == 2
    assert message in capsys.readouterr().err and [each.name for each in cwd.iterdir()] == ['there.npz']


@pytest.mark.parametrize(
    'words',
    [
        ['--out', 'x'],
        ['--random', '--out', 'x'],
        ['run', '--random', '--env', 'a', '--out', 'x'],
        ['run', '--env', 'a', '--out', 'x'],
    ],
)
def test_arguments_that_do_not_go_together_are_refused(words: list[str], cwd: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main(['collect', *words])
    assert caught.value.code == 2


@pytest.mark.parametrize(('explore', 'eps', 'expected'), [(False, None, {1.0}), (True, 0.2, {0.1, 0.9})])
def test_the_probability_of_each_action_is_recorded_if_it_is_known(
    run: rlframe.Run, explore: bool, eps: float | None, expected: set[float], tmp_path: Path
) -> None:
    if 'pendulum' in str(run.folder):
        pytest.skip('actions are continuous')
    path = str(tmp_path / 'data.npz')
    collect(run.folder, CollectRequest(300, path, explore=explore, eps=eps))
    found = read_recording(path).columns['action_prob'][:]
    assert set(np.round(found.astype(float), 5).tolist()) == expected
