"""``policy.collect.record`` writes the whole episodes of a run beside training, also over interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlframe
from rlframe.data.formats import read_recording
from rlframe.errors import ConfigError

SMALL: dict[str, Any] = {
    'env.collector_env_num': 3,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.stop_value': 'never',
    'policy.eval.evaluator.eval_freq': 10_000,
    'policy.learn.batch_size': 32,
    'policy.model.encoder_hidden_size_list': [8],
}


def train(name: str, folder: str, steps: int, **overrides: Any) -> rlframe.Run:
    given = {**SMALL, **overrides}
    if name == 'cartpole_ppo':
        given |= {
            'policy.collect.n_sample': 96,
            'policy.learn.batch_size': 48,
            'policy.learn.epoch_per_collect': 1,
        }
    if name == 'cartpole_dqn':
        given |= {'policy.learn.update_per_collect': 1, 'policy.random_collect_size': 50}
    return rlframe.train(name, folder=folder, progress=False, overrides=given, max_env_step=steps)


@pytest.mark.parametrize('name', ['cartpole_dqn', 'cartpole_ppo'])
def test_a_run_records_its_whole_episodes_also_if_it_is_resumed(name: str, cwd: Path) -> None:
    train(name, 'whole', 600, **{'policy.collect.record': 'whole.npz'})
    whole = read_recording('whole.npz')
    episodes = whole.episodes()
    assert 450 < len(whole) <= 700 and (episodes.terminated | episodes.truncated).all()
    rows = {key: column[:] for key, column in whole.columns.items()}
    same = rows['episode'][1:] == rows['episode'][:-1]
    np.testing.assert_array_equal(rows['obs'][1:][same], rows['next_obs'][:-1][same])
    assert whole.facts['behaviour']['policy'] == name.removeprefix('cartpole_')
    assert not (cwd / 'whole' / 'record').exists()

    half = train(name, 'half', 290, **{'policy.collect.record': 'half.npz'})
    assert 0 < len(read_recording('half.npz')) < 400
    half.resume(max_env_step=600, progress=False)
    assert read_recording('half.npz').digest() == whole.digest()

    plain = train(name, 'plain', 600)
    obs = np.linspace(-0.4, 0.4, 40).reshape(10, 4)
    recorded = rlframe.open_run('whole')
    np.testing.assert_array_equal(plain.policy.act(obs), recorded.policy.act(obs))


def test_a_run_that_is_left_in_its_middle_has_written_its_episodes(cwd: Path) -> None:
    overrides = SMALL | {'policy.collect.record': 'data.npz'}
    run = rlframe.start('cartpole_dqn', folder='run', progress=False, overrides=overrides, max_env_step=5000)
    for iteration in run.iterations():
        if iteration.episodes >= 12:
            break
    found = read_recording('data.npz')
    assert len(found.episodes().start) >= 12 and (cwd / 'run' / 'record').exists()
    digest = found.digest()
    rlframe.open_run('run').resume(max_env_step=run.progress.envstep + 200, progress=False)
    longer = read_recording('data.npz')
    assert len(longer) > len(found)
    np.testing.assert_array_equal(longer.columns['obs'][: len(found)], found.columns['obs'])
    assert digest != longer.digest()


@pytest.mark.parametrize(
    ('overrides', 'words'),
    [
        ({'policy.collect.record': 'there.npz'}, r'policy\.collect\.record: .*there\.npz exists'),
        ({'policy.collect.record': 'x.hdf5'}, 'only read'),
        (
            {'policy.collect.record': 'x.npz', 'policy.collect.collector.overlap': 1},
            'collected in this process',
        ),
    ],
)
def test_what_cannot_be_recorded_is_said_before_training(
    overrides: dict[str, Any], words: str, cwd: Path
) -> None:
    Path('there.npz').touch()
    with pytest.raises(ConfigError, match=words):
        train('cartpole_dqn', 'run', 600, **overrides)
    assert [each.name for each in cwd.iterdir()] == ['there.npz']
