"""An env that ends the process of a run is an error of that run: with a word, and an exit code that is not 0."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runs import DQN, ROOT, finish, train

from rlframe.entry.__main__ import main
from rlframe.errors import EnvCrashedError, RunEndedError
from rlframe.pipeline import SerialPipeline, serial_pipeline
from rlframe.run.exit_guard import HardExit, guarded, hard_exit

ENV = """
import os, sys
from os import _exit
import gymnasium, numpy as np

class Ending(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, at=0, how='os._exit(0)'):
        self.at, self.how, self.count = at, how, 0
        if at == 0:
            eval(how)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}
    def step(self, action):
        self.count += 1
        if self.count == self.at:
            eval(self.how)
        return np.zeros(4, np.float32), 1.0, self.count % 5 == 0, False, {}
"""


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / 'ending_env.py').write_text(ENV)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop('ending_env', None)
    return tmp_path


def words(at: int, how: str, *more: str) -> tuple[str, ...]:
    return (*DQN, 'env.env_id=ending_env:Ending', f'env.kwargs.at={at}', f"env.kwargs.how='{how}'", *more)


def given(*words: str) -> list[str]:
    return [str(ROOT / word) if word.startswith('configs/') else word for word in words]


@pytest.mark.slow
def test_process_of_a_run_that_an_env_ends_is_no_success(cwd: Path) -> None:
    _, err = finish(train(cwd, *words(25, 'os._exit(0)')), 1)
    assert 'EnvCrashedError' in err and 'HardExit: os._exit(0) (<string>:1)' in err


@pytest.mark.parametrize('how', ['os._exit(0)', '_exit(0)', 'sys.exit(0)'])
@pytest.mark.parametrize('manager', ['base', 'gym_vector'])
def test_run_whose_env_ends_the_process_fails_with_a_word(
    cwd: Path, how: str, manager: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = (f'env_manager.type={manager}', 'policy.learn.learner.hook.save_ckpt_after_iter=2')
    assert main(given(*words(25, how, *more))) == 1
    err = capsys.readouterr().err
    assert ('sys.exit(0)' if 'sys' in how and manager != 'base' else 'xit') in err
    assert 'Error' in err and 'crash report' in err
    folder = cwd / 'cartpole_dqn_seed0'
    assert 'ending_env.py' in ''.join(path.read_text() for path in folder.glob('crash_*'))
    assert not (folder / '.lock').exists() and list(folder.glob('ckpt/iteration_*'))


@pytest.mark.parametrize('manager', ['base', 'gym_vector'])
def test_env_that_ends_the_process_when_it_is_made_is_no_success(
    cwd: Path, manager: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given(*words(0, 'os._exit(0)', f'env_manager.type={manager}'))) in (1, 2)
    err = capsys.readouterr().err
    assert 'os._exit(0)' in err and 'Error' in err and not list(cwd.glob('cartpole*'))


def test_python_gets_an_error(cwd: Path) -> None:
    from rlframe.config import compile_config, read_config

    pair = read_config(str(ROOT / 'configs' / 'cartpole_dqn.py'))
    overrides = [word for word in words(25, 'os._exit(0)') if '=' in word]
    with pytest.raises(EnvCrashedError, match=r'HardExit: os\._exit\(0\) \(.*:'):
        serial_pipeline(pair, overrides=overrides)
    cfg = compile_config(*pair, overrides=[*overrides, 'env_manager.type=gym_vector'])
    with SerialPipeline(cfg) as pipeline, pytest.raises(RunEndedError, match=r'os\._exit\(0\)'):
        pipeline.run()
    assert os._exit is hard_exit


def test_restarted_env_outlives_its_own_end(cwd: Path) -> None:
    code = main(given(*words(25, 'os._exit(0)'), 'env.manager.on_error=restart', '--train-iter', '20'))
    assert code == 0


def test_guard_is_for_this_process_and_its_main_thread() -> None:
    with guarded(), guarded():
        with pytest.raises(HardExit, match=r'os\._exit\(3\)'):
            os._exit(3)
        child = os.fork()
        if not child:
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert os._exit is hard_exit
    program = (
        'import os, threading; from rlframe.run.exit_guard import guarded\n'
        'with guarded():\n    thread = threading.Thread(target=os._exit, args=(0,)); thread.start(); thread.join()'
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and 'os._exit(0)' in done.stderr
    assert threading.current_thread() is threading.main_thread()
