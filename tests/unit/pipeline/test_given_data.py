"""A replay buffer that begins with recorded data: what it holds, the updates before the first env step, and exact resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from runs import assert_same_end

import rlframe
from rlframe import config
from rlframe.data.formats import read_recording
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline

BUFFER = 'policy.other.replay_buffer'
FROM = f'{BUFFER}.init_from'
SMALL: dict[str, Any] = {
    'env.collector_env_num': 3,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.stop_value': 'never',
    'policy.eval.evaluator.eval_freq': 40,
    'policy.model.encoder_hidden_size_list': [8],
    'policy.learn.batch_size': 16,
    'policy.learn.update_per_collect': 2,
    'policy.collect.n_sample': 6,
}
DQN = ('cartpole_dqn', {'policy.priority': True, 'replay_buffer.type': 'advanced'})


def train(name: str, folder: str, steps: int, **overrides: Any) -> rlframe.Run:
    return rlframe.train(
        name, folder=folder, progress=False, overrides={**SMALL, **overrides}, max_env_step=steps
    )


@pytest.fixture(scope='module')
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a few recorded episodes of CartPole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('recorded'))
        train('cartpole_dqn', 'recorded', 300, **{'policy.collect.record': 'data.npz'})
        return Path('data.npz').resolve()


@pytest.fixture
def data(recorded: Path, cwd: Path) -> str:
    """Returns the path of a copy of it."""
    return shutil.copy(recorded, 'data.npz')


def test_data_without_a_share_are_the_first_rows_and_their_windows_end_with_their_episodes(data: str) -> None:
    given = {**SMALL, FROM: data, 'policy.nstep': 3}
    cfg = config.compile_config(*config.read_config('cartpole_dqn'), overrides=given)
    with SerialPipeline(cfg) as pipeline:
        state = pipeline.replay_buffer.state_dict()['storage']['columns']
        gamma = pipeline.policy.get_attribute('discount_factor')
    episodes = read_recording(data).episodes()
    # each window has as many rewards of 1 as steps are left in its episode, and at most 3
    left = np.concatenate([np.arange(length, 0, -1) for length in episodes.length])
    wanted = np.sort((gamma ** np.minimum(left, 3)).astype(np.float32))
    np.testing.assert_allclose(np.sort(state['value_gamma']), wanted, rtol=1e-6)


@pytest.mark.parametrize('share', [0.0, 0.5])
def test_updates_from_data_come_before_the_first_env_step_and_are_marked(data: str, share: float) -> None:
    given = {FROM: data, f'{BUFFER}.init_share': share, f'{BUFFER}.init_updates': 55}
    run = train('cartpole_dqn', 'run', 60, **given)
    records = run.metrics()
    offline = records['train_iter'][records['envstep'] == 0]
    assert offline.max() == 55
    assert records.last('time/online_iter') == 55
    assert run.progress.envstep == 60
    (axes,) = run.plot().axes
    assert axes.get_xlabel() == 'updates'
    assert 55 in [line.get_xdata()[0] for line in axes.lines]


R2D2 = ('cartpole_novel_r2d2', {'policy.model.lstm_hidden_size': 8, 'policy.learn.batch_size': 4})


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'more', 'updates'),
    [
        (*DQN, 50),
        (*DQN, 0),
        ('cartpole_dqn', {'policy.nstep': 3, 'policy.normalize_obs': True}, 50),
        (*R2D2, 20),
    ],
    ids=['advanced', 'no updates', 'nstep', 'r2d2'],
)
def test_a_run_from_data_resumes_exactly_offline_and_online(
    cwd: Path, name: str, more: dict[str, Any], updates: int
) -> None:
    train(name, 'recorded', 300, **{'policy.collect.record': 'data.npz'})
    given = {
        **more,
        FROM: 'data.npz',
        f'{BUFFER}.init_share': 0.5,
        f'{BUFFER}.init_updates': updates,
        'policy.learn.learner.hook.save_ckpt_after_iter': 10,
    }
    whole = train(name, 'whole', 120, **given)
    for half in {10, updates + 10}:
        folder = f'half{half}'
        stopped = rlframe.start(
            name, folder=folder, progress=False, overrides={**SMALL, **given}, max_env_step=120
        )
        for iteration in stopped.iterations():
            if iteration.train_iter >= half:
                break
        again = rlframe.open_run(folder).resume(progress=False)
        assert_same_end(whole.folder, again.folder)


@pytest.mark.parametrize('share', [0.0, 0.5])
def test_data_whose_observations_have_parts_are_saved_and_read_again(cwd: Path, share: float) -> None:
    hindsight = {'policy.random_collect_size': 0, 'env.evaluator_env_num': 1}
    train('bitflip_dqn', 'recorded', 90, **hindsight, **{'policy.collect.record': 'data.npz'})
    given = {
        **hindsight,
        FROM: 'data.npz',
        f'{BUFFER}.init_share': share,
        'policy.learn.learner.hook.save_ckpt_after_iter': 10,
    }
    whole = train('bitflip_dqn', 'whole', 96, **given)
    stopped = rlframe.start(
        'bitflip_dqn', folder='half', progress=False, overrides={**SMALL, **given}, max_env_step=96
    )
    next(stopped.iterations())
    again = rlframe.open_run('half').resume(progress=False)
    assert_same_end(whole.folder, again.folder)


WRONG: list[dict[str, Any]] = [
    {FROM: 'missing.npz'},
    {FROM: 3},
    {f'{BUFFER}.init_share': 0.5},
    {f'{BUFFER}.init_updates': 10},
    {FROM: 'data.npz', 'env.env_id': 'Acrobot-v1'},
    {FROM: 'pairs.npz'},
    {FROM: 'data.npz', 'policy.normalize_reward': True},
    {FROM: 'data.npz', f'{BUFFER}.init_updates': 10, 'policy.learn.batch_size': 5000},
    {FROM: 'data.npz', f'{BUFFER}.replay_buffer_size': 100},
    {'policy.collect.expert_share': 0.3},
]


@pytest.mark.parametrize('number', range(len(WRONG)))
def test_bad_data_are_refused_before_there_is_a_run_folder(data: str, cwd: Path, number: int) -> None:
    columns = read_recording(data).columns
    np.savez('pairs.npz', obs=columns['obs'], action=columns['action'])
    with raises(ConfigError):
        train('cartpole_dqn', 'run', 60, **WRONG[number])
    assert not (cwd / 'run').exists()
