"""An env that ends the process of a run is an error of that run: with a word, and an exit code that is not 0."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from error_texts import raises
from runs import DQN, ROOT, train

from rlframe.entry.__main__ import main
from rlframe.errors import RunEndedError
from rlframe.pipeline import SerialPipeline
from rlframe.run.exit_guard import readers_may_leave

ENV = """
import sys
import gymnasium, numpy as np

class Ending(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, at=0):
        self.at, self.count = at, 0
        if at == 0:
            sys.exit(0)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}
    def step(self, action):
        print('a step', flush=True)
        self.count += 1
        if self.count == self.at:
            sys.exit(0)
        return np.zeros(4, np.float32), 1.0, self.count % 5 == 0, False, {}


class Several(gymnasium.vector.SyncVectorEnv):
    def __init__(self, num_envs, at):
        super().__init__([lambda: Ending(at)] * num_envs)
"""


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / 'ending_env.py').write_text(ENV)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop('ending_env', None)
    return tmp_path


def words(at: int, *more: str) -> list[str]:
    given = (*DQN, 'env.env_id=ending_env:Ending', f'env.kwargs.at={at}', *more)
    return [str(ROOT / word) if word.startswith('configs/') else word for word in given]


def test_run_whose_env_ends_the_process_fails_with_a_word(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ('env_manager.type=base', 'policy.learn.learner.hook.save_ckpt_after_iter=2')
    assert main(words(25, *more)) == 1
    err = capsys.readouterr().err
    assert 'SystemExit: 0' in err and 'Error' in err and 'emergency checkpoint' in err
    folder = cwd / 'cartpole_dqn_seed0'
    assert 'ending_env.py' in (folder / 'log.txt').read_text()
    assert not (folder / '.lock').exists() and list(folder.glob('ckpt/iteration_*'))


def test_env_that_ends_the_process_when_it_is_made_is_no_success(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(0, 'env_manager.type=gym_vector')) in (1, 2)
    err = capsys.readouterr().err
    assert 'Error' in err and 'xit' in err and not list(cwd.glob('cartpole*'))


def test_python_gets_an_error(cwd: Path) -> None:
    from rlframe.config import compile_config, read_config

    pair = read_config(str(ROOT / 'configs' / 'cartpole_dqn.py'))
    overrides = [word for word in words(25, 'env.env_id=ending_env:Several') if '=' in word]
    cfg = compile_config(*pair, overrides=[*overrides, 'env_manager.type=gym_vector'])
    with SerialPipeline(cfg) as pipeline, raises(RunEndedError):
        pipeline.run()


@pytest.mark.usefixtures('copies')
@pytest.mark.parametrize(
    'more',
    [
        ('env_manager.type=base',),
        ('env_manager.type=subprocess',),
        pytest.param(('env_manager.type=base', '--seeds', '0'), marks=pytest.mark.slow),
    ],
    ids=lambda more: more[-1],
)
def test_a_run_goes_on_when_nobody_reads_what_it_shows(more: tuple[str, ...], cwd: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = train(cwd, *words(10**9, *more), '--env-step', '300', stdout=writer, stderr=writer)
    os.close(writer)
    assert process.wait(120) == 0
    log = (cwd / 'cartpole_dqn_seed0' / 'log.txt').read_text()
    assert 'evaluation at envstep 300' in log and 'Traceback' not in log


def test_what_waited_comes_first_and_a_stream_of_a_notebook_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OfNotebook(io.StringIO):
        def fileno(self) -> int:
            return writer

    reader, writer = os.pipe()
    with os.fdopen(reader) as read, os.fdopen(writer, 'w') as stream:
        notebook = OfNotebook()
        monkeypatch.setattr(sys, 'stdout', stream)
        monkeypatch.setattr(sys, 'stderr', notebook)
        print('first')
        with readers_may_leave():
            assert sys.stdout is not stream and sys.stderr is notebook
            print('second', end='')
        print('third', flush=True)
        assert read.readline() == 'first\n' and read.readline() == 'secondthird\n'
