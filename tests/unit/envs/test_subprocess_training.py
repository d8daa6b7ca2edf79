"""Training on envs in worker processes, also on envs that fail; and what the command line says of those that cannot be used."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import config_pair
from fault_envs import RandomlyFailing, Uneven, leftovers, uneven_reward
from moved_memory import arrays_at
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe import config
from rlframe.entry.__main__ import main
from rlframe.pipeline import SerialPipeline
from rlframe.run.manifest import read_manifest

CONFIG = """
    import os
    import threading
    from fault_envs import FaultEnv, Steady, raise_own

    class Mine(Steady):
        '''Defined in a config file, which no worker can import.'''

    def in_a_worker_only(**kwargs):
        raise_own() if os.environ.get('OMP_NUM_THREADS') == '1' and os.getpgrp() == os.getpid() else None
        return Steady(**kwargs)

    main_config = dict(
        exp_name='mine',
        env=dict(env_id={env_id}, collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            collect=dict(n_sample=32), learn=dict(batch_size=16), other=dict(replay_buffer=dict(replay_buffer_size=500))
        ),
    )
    create_config = dict(policy=dict(type='dqn'), env_manager=dict(type='subprocess'))
"""


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: Any) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = leftovers()
    yield
    assert leftovers() == before


def train(policy: str, **sections: Any) -> SerialPipeline:
    """Trains until a budget of 600 env steps is spent."""
    pair = config_pair(policy=policy, max_env_step=600, evaluator={'eval_freq': 50}, **sections)
    with SerialPipeline(config.compile_config(*pair, seed=3)) as pipeline:
        pipeline.run()
    return pipeline


def test_training_gives_the_same_numbers_as_in_one_process() -> None:
    runs = []
    for offset, kind, more in ((0, 'base', {}), (8, 'subprocess', {'worker_num': 2})):
        with arrays_at(offset):
            runs.append(train('dqn', manager=kind, manager_=more, model={'encoder_hidden_size_list': [8]}))
    assert runs[0].progress.envstep >= 600 and runs[0].progress.train_iter > 10
    for name in ('envstep', 'train_iter', 'episodes'):
        assert getattr(runs[0].progress, name) == getattr(runs[1].progress, name)
    weights = [run.policy.collect_mode.state_dict()['model'] for run in runs]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert (value == weights[1][name]).all(), name


@pytest.mark.parametrize(('options', 'is_exact'), [({}, False), ({'wait_num': 4}, True)])
def test_a_run_whose_order_of_answers_decides_says_once_that_it_is_not_exact(
    options: dict[str, int], is_exact: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = train('dqn', manager='async_subprocess', manager_=options)
    said = [record.getMessage() for record in caplog.records if 'bit for bit' in record.getMessage()]
    manifest = read_manifest(pipeline.folder / 'ckpt' / 'latest')
    assert pipeline.exact is manifest['exact'] is is_exact
    assert len(said) == (0 if is_exact else 1) and len(manifest['inexact']) == len(said)
    assert is_exact or 'env_manager.wait_num=4' in said[0]


@pytest.mark.parametrize(
    ('policy', 'kind', 'on_error'),
    [('ppo', 'subprocess', 'drop'), ('dqn', 'async_subprocess', 'restart')],
)
def test_training_outlives_envs_that_fail_and_counts_honestly(policy: str, kind: str, on_error: str) -> None:
    probability = 0.01 if on_error == 'restart' else 0.003
    pipeline = train(
        policy,
        env_id=partial(RandomlyFailing, probability=probability),
        env=dict(collector_env_num=8),
        manager=kind,
        manager_={'on_error': on_error, 'max_restarts': 1000},
    )
    env, collector = pipeline.collector._env, pipeline.collector
    assert pipeline.progress.envstep >= 600 and pipeline.progress.train_iter > 10
    not_taken = 8 if kind == 'async_subprocess' else 0  # envs may have failed since the last step was taken
    causes = len(env._budget.causes)
    assert causes > 0 and collector.discarded >= max(causes - not_taken, 1)
    assert len(env.alive) == 8 - (on_error == 'drop') * len(env._budget.causes)
    assert pipeline.evaluator.latest == pytest.approx(sum(0.1 * k for k in range(1, 21)), rel=1e-3)
    assert env._budget.on_error == on_error
    assert pipeline.evaluator._env._budget.on_error == 'restart', 'an evaluation goes on with all of its envs'
    if pipeline.replay_buffer is not None:
        stored = pipeline.replay_buffer.state_dict()['storage']['columns']
        ends = (stored['terminated'] | stored['truncated']).astype(bool)
        assert ((stored['next_obs'][:, 2] == 20) == ends).all(), 'a fault was stored as an end'


def test_a_run_that_is_saved_while_envs_are_busy_goes_on_with_steps_that_belong_together(
    tmp_path: Path,
) -> None:
    env_id = partial(Uneven, delay=0.005)
    pair = config_pair(env_id=env_id, manager='async_subprocess', learn=dict(update_per_collect=1))
    with SerialPipeline(config.compile_config(*pair, seed=3)) as pipeline:
        while pipeline.progress.envstep < 300 or not pipeline.collector._env.busy.any():
            pipeline.step()
        pipeline.save_checkpoint(tmp_path / 'saved')
        saved = pipeline.progress.envstep
    with SerialPipeline(config.compile_config(*pair, seed=3)) as pipeline:
        pipeline.load_checkpoint(tmp_path / 'saved')
        for _ in range(30):
            pipeline.step()
        assert pipeline.progress.envstep >= saved + 200 and pipeline.progress.train_iter > 40
        stored = pipeline.replay_buffer.state_dict()['storage']['columns']
    rows = {
        name: np.asarray(stored[name])[: pipeline.progress.envstep]
        for name in ('obs', 'next_obs', 'action', 'reward')
    }
    assert len(rows['obs']) == 500 > saved, 'rows of both runs'
    np.testing.assert_array_equal(
        rows['next_obs'][:, :3], rows['obs'][:, :3] + np.array([0, 0, 1], np.float32)
    )
    np.testing.assert_array_equal(rows['reward'], uneven_reward(rows['next_obs'], rows['action']))


def write(tmp_path: Path, env_id: str) -> str:
    path = tmp_path / 'mine.py'
    path.write_text(textwrap.dedent(CONFIG).replace('{env_id}', env_id))
    return str(path)


def test_an_env_of_a_config_file_runs_in_workers(tmp_path: Path, capsys: Any) -> None:
    assert main(['-c', write(tmp_path, 'Mine'), '--env-step', '64']) == 0
    assert '4 envs of Mine (subprocess)' in capsys.readouterr().out


CASES = [
    ('lambda: Steady(length=LOCK)', ['SerializationError', 'LOCK is a lock', 'module-level factory']),
    (
        'in_a_worker_only',
        ['EnvStartError: env 0: its constructor raised OwnError', 'Traceback', 'in raise_own'],
    ),
]


@pytest.mark.parametrize(('env_id', 'words'), CASES)
def test_envs_that_no_worker_can_make_are_refused(
    tmp_path: Path, capsys: Any, env_id: str, words: list[str]
) -> None:
    path = write(tmp_path, env_id)
    text = Path(path).read_text().replace('main_config =', 'LOCK = threading.Lock()\nmain_config =', 1)
    Path(path).write_text(text)
    assert main(['-c', path]) == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error
    assert not list(tmp_path.glob('mine*/')), 'a run folder was made'


def test_an_env_that_fails_in_a_run_is_one_clear_line_on_the_command_line(
    tmp_path: Path, capsys: Any
) -> None:
    path = write(tmp_path, "lambda: FaultEnv(0, 'raise_own', at=7)")
    assert main(['-c', path]) == 1
    err = capsys.readouterr().err
    words = 'env 0, episode 2, step 2: step() raised OwnError: the simulator lost its mind (fault_envs.py:'
    assert f'rlframe: EnvCrashedError: {words}' in err and 'crash report' in err.splitlines()[-2]
