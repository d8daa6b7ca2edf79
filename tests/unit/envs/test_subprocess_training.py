"""Training on envs in worker processes; and what the command line says of those that cannot be used."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from moved_memory import arrays_at
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe import config
from rlframe.entry.__main__ import main
from rlframe.pipeline import SerialPipeline
from rlframe.run.manifest import read_manifest

CONFIG = """
    from fault_envs import FaultEnv, Steady

    class Mine(Steady):
        '''Defined in a config file, which no worker can import.'''

    main_config = dict(
        exp_name='mine',
        env=dict(env_id={env_id}, collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
        policy=dict(
            collect=dict(n_sample=32), learn=dict(batch_size=16), other=dict(replay_buffer=dict(replay_buffer_size=500))
        ),
    )
    create_config = dict(policy=dict(type='dqn'), env_manager=dict(type='subprocess'))
"""


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('nothing_is_left')]


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)


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


def test_an_evaluation_goes_on_with_all_of_its_envs() -> None:
    pair = config_pair(manager_={'on_error': 'drop', 'max_restarts': 9})
    with SerialPipeline(config.compile_config(*pair, seed=3)) as pipeline:
        budgets = [part._env._budget for part in (pipeline.collector, pipeline.evaluator)]
    assert [(budget.on_error, budget.max_restarts) for budget in budgets] == [('drop', 9), ('restart', 9)]


def write(tmp_path: Path, env_id: str) -> str:
    path = tmp_path / 'mine.py'
    path.write_text(textwrap.dedent(CONFIG).replace('{env_id}', env_id))
    return str(path)


def test_an_env_of_a_config_file_runs_in_workers(tmp_path: Path, capsys: Any) -> None:
    assert main(['-c', write(tmp_path, 'Mine'), '--env-step', '64']) == 0
    assert '4 envs of Mine (subprocess)' in capsys.readouterr().out


def test_an_env_that_fails_in_a_run_is_one_clear_line_on_the_command_line(
    tmp_path: Path, capsys: Any
) -> None:
    path = write(tmp_path, "lambda: FaultEnv(0, 'raise_own', at=7)")
    assert main(['-c', path]) == 1
    err = capsys.readouterr().err
    words = 'env 0, episode 2, step 2: step() raised OwnError: the simulator lost its mind (fault_envs.py:'
    assert f'rlframe: EnvCrashedError: {words}' in err and 'emergency checkpoint' in err.splitlines()[-1]
