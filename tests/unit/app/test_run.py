"""Runs in Python: trained, scored, plotted, resumed, step by step, with parts that only the program has."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from fakes import CountingEnv, config_pair

import rlframe
from rlframe.errors import (
    CheckpointError,
    ConfigError,
    ConfigWarning,
    ExperimentExistsError,
    UnsafeCheckpointError,
)

pytestmark = pytest.mark.usefixtures('cwd')

EPISODE = 5


make_env = lambda **options: CountingEnv(lengths=EPISODE)  # noqa: E731  what no module has under its name


def network() -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 2))


PAIR = config_pair(max_train_iter=6, evaluator=dict(eval_freq=2))


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rlframe.Run]:
    """A finished run of a function and of a network of this program."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp('run'))
    try:
        with pytest.warns(ConfigWarning, match='open_run'):
            yield rlframe.train(PAIR, env=make_env, model=network(), seed=3, progress=False)
    finally:
        os.chdir(before)


@pytest.mark.filterwarnings('ignore:CountingEnv. two calls of reset')
def test_run_with_own_env_and_network_is_scored_acts_and_tells_its_facts(run: rlframe.Run) -> None:
    assert run.progress.train_iter == 6 and run.config.seed == 3 and not run.solved
    score = run.evaluate(episodes=3)
    assert score.lengths == [EPISODE] * 3 and score.mean == pytest.approx(np.mean(score.returns))
    assert 'over 3 episodes (' in repr(score) and 'over 1 episode (' in repr(run.evaluate(episodes=1))
    assert '95 % interval' in repr(score) and run.best == max(run.metrics()['eval/mean_reward'])
    assert run.policy.act(np.zeros(3, np.float32)) in (0, 1)
    assert run.folder.name == 'toy_seed3' and 'dqn on CountingEnv' in repr(run)
    with pytest.raises(ConfigError) as bad:
        run.evaluate(1, video=__file__)
    assert bad.value.where == 'video'


def test_figure_of_a_run_has_the_evaluations(run: rlframe.Run) -> None:
    pytest.importorskip('matplotlib')
    assert run.plot().axes[0].lines
    with raises(ConfigError):
        run.plot('eval/mean_rewards')


@pytest.mark.filterwarnings('ignore:CountingEnv. two calls of reset')
def test_other_process_passes_the_parts_again_and_is_told_so(run: rlframe.Run) -> None:
    with raises(ConfigError):
        rlframe.open_run(run.folder)
    again = rlframe.open_run(run.folder, env=make_env, model=network())
    assert again.progress == run.progress and again.best == run.best and again.solved == run.solved
    assert again.evaluate(2).returns == run.evaluate(2).returns
    with pytest.raises(CheckpointError):
        rlframe.open_run(run.folder / 'nowhere')


def test_iterations_stop_where_the_loop_ends_and_the_run_resumes_as_one_that_never_stopped(cwd: Path) -> None:
    whole = rlframe.train(PAIR, progress=False, folder='whole')
    run = rlframe.start(PAIR, folder='parts')
    for iteration in run.iterations():
        run.evaluate(1, which='latest')  # draws nothing from the run's randomness
        if iteration.train_iter >= 2:
            break
    assert run.progress.train_iter == iteration.train_iter and not (cwd / 'parts' / '.lock').exists()
    run.resume(progress=False)
    assert run.progress.train_iter == 6 and run.best == whole.best
    values = [each.metrics()['eval/mean_reward'] for each in (whole, run)]
    np.testing.assert_array_equal(*(value[np.isfinite(value)] for value in values))
    run.resume(max_train_iter=8, progress=False)
    assert run.progress.train_iter >= 8
    with raises(ConfigError):
        run.step()
    run.close()


@pytest.mark.filterwarnings('ignore::rlframe.errors.ConfigWarning', 'ignore:CountingEnv. two calls of reset')
def test_ctrl_c_saves_and_is_raised(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent, before = [], signal.getsignal(signal.SIGINT)

    def make_interrupting(**options: Any) -> gymnasium.Env[Any, Any]:
        return Interrupting(CountingEnv(lengths=EPISODE))

    class Interrupting(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            if not sent and self.has_trained():
                sent.append(1)
                signal.raise_signal(signal.SIGINT)
            return super().step(action)

        def has_trained(self) -> bool:
            return (cwd / 'toy_seed0' / 'ckpt' / 'best').exists()

    pair = config_pair(max_train_iter=1000, evaluator=dict(eval_freq=2))
    with pytest.raises(KeyboardInterrupt):
        rlframe.train(pair, env=make_interrupting)
    out = capsys.readouterr().out
    assert 'interrupted and saved' in out and "rlframe.open_run('toy_seed0', env=...).resume()" in out
    assert (cwd / 'toy_seed0' / 'ckpt' / 'latest').exists()
    assert signal.getsignal(signal.SIGINT) is before


def test_foreign_run_is_opened_only_if_it_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    main, create = config_pair(max_train_iter=2, evaluator=dict(eval_freq=2))
    run = rlframe.train((main, {**create, 'import_names': ['colorsys']}), progress=False)
    assert rlframe.open_run(run.folder).progress == run.progress
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'another key of 32 letters or more')
    with raises(UnsafeCheckpointError):
        rlframe.open_run(run.folder)
    assert rlframe.open_run(run.folder, trust=True).evaluate(1).episodes == 1


@pytest.mark.parametrize(
    ('given', 'options'),
    [
        (PAIR, dict(lr=1e-3)),
        (PAIR, dict(type='x')),
        (PAIR, dict(policy='ppo')),
        (PAIR, dict(overrides={'policy.lern.x': 1})),
        (None, {}),
        ('CartPole-v1', {}),
    ],
)
def test_bad_arguments_are_told_with_the_right_ones_and_leave_nothing_behind(
    given: Any, options: dict[str, Any], cwd: Path
) -> None:
    with raises(ConfigError):
        rlframe.train(given, **options)
    assert not list(cwd.iterdir())


NOTEBOOK = """
import rlframe
run = rlframe.train(env='CartPole-v1', policy='dqn', max_env_step=1500, seed=0)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_notebook_shows_one_line_that_is_updated(cwd: Path) -> None:
    nbformat = pytest.importorskip('nbformat')
    nbclient = pytest.importorskip('nbclient')
    pytest.importorskip('ipykernel')
    cells = [nbformat.v4.new_code_cell(text) for text in (NOTEBOOK, 'run', 'run.evaluate(2)')]
    book = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(book, timeout=120, kernel_name='python3')
    client.create_kernel_manager().transport = 'ipc'
    client.execute()
    trained, run, score = (cell.outputs for cell in book.cells)
    shown = [output for output in trained if output.output_type == 'display_data']
    assert len(shown) == 1 and 'env steps 1,504' in shown[0].data['text/plain']
    text = ''.join(output.text for output in trained if output.output_type == 'stream')
    assert 'dqn on 8 envs' in text and '.resume(' in text and '\x1b' not in text
    assert '1,504 env steps' in run[0].data['text/plain'] and 'over 2 episodes' in score[0].data['text/plain']


@pytest.mark.filterwarnings('ignore:CountingEnv. two calls of reset')
def test_a_run_started_without_progress_shows_none(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = config_pair(max_env_step=16)
    run = rlframe.start(pair, progress=False, folder='quiet').train()
    assert run.resume(max_env_step=32).progress.envstep == 32
    assert capsys.readouterr().out == ''
    rlframe.start(pair, progress=False).train(progress=True)
    assert 'env steps' in capsys.readouterr().out
    for begin in (rlframe.start, rlframe.train):
        with raises(ExperimentExistsError) as told:
            begin(pair, folder='quiet')
        assert '--' not in told.value.remedy
    with pytest.raises(KeyError, match=r"no metric 'eval/mean_rewrd'. Did you mean 'eval/mean_reward'"):
        run.metrics()['eval/mean_rewrd']


def test_a_closed_run_says_whether_it_is_finished_and_stays_closed() -> None:
    run = rlframe.train(PAIR, progress=False)
    assert run.finished and run._pipeline is None
    assert (
        not rlframe.open_run(run.folder).resume(max_train_iter=8).solved
    )  # which needs the folder for itself
