"""A run that is over goes on when its budget or its goal changes, and says what to give where nothing changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runs import DQN, ROOT, Run, differences, end_state, records

from rlframe.entry.__main__ import main
from rlframe.pipeline import serial_pipeline
from rlframe.run.read_checkpoint import load_checkpoint

SAVES = 'policy.learn.learner.hook.save_ckpt_after_iter=20'
OFTEN = ('policy.eval.evaluator.eval_freq=20', SAVES)
SOLVED = (*DQN, *OFTEN, 'env.stop_value=1', 'max_env_step=1e10')


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to be copied."""
    folder = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(['-c', str(ROOT / SOLVED[1]), *SOLVED[2:]]) == 0
    assert end_state(folder / 'cartpole_dqn_seed0')['progress']['train_iter'] == 20
    return folder / 'cartpole_dqn_seed0'


@pytest.fixture
def solved(run: Run, trained: Path, tmp_path: Path) -> Path:
    """The folder of a run that an evaluation at train iteration 20 ended."""
    return shutil.copytree(trained, tmp_path / trained.name, symlinks=True)


def test_solved_run_trains_on_to_a_budget_that_is_given(run: Run, solved: Path) -> None:
    code, out, _ = run('--resume', str(solved), '--train-iter', '80')
    assert code == 0 and 'nothing is left' not in out
    assert 'until a budget is spent (the goal of 1 was reached)' in out
    assert '\nsolved: best evaluation' in out
    assert end_state(solved)['progress']['train_iter'] == 80
    code, out, _ = run('--resume', str(solved))
    assert code == 0 and 'the budget of 80 updates is spent: nothing is left to do' in out
    assert run('--resume', str(solved), '--train-iter', '100')[0] == 0
    assert end_state(solved)['progress']['train_iter'] == 100
    code, out, _ = run('--resume', str(solved), '--train-iter', '1e10')
    assert code == 0 and 'solved: nothing is left to do' in out, 'without a budget it would never end'


def test_solved_run_trains_on_to_a_higher_goal_like_one_that_had_it_from_the_start(
    run: Run, solved: Path, tmp_path: Path
) -> None:
    code, out, _ = run('--resume', str(solved), 'env.stop_value=1e9', '--train-iter', '40')
    assert code == 0 and 'until an evaluation averages 1,000,000,000' in out
    assert '\nnot solved:' in out and '(goal 1,000,000,000)' in out
    assert run(*DQN, *OFTEN, '--train-iter', '40')[0] == 0
    straight = tmp_path / 'cartpole_dqn_seed0_1'
    assert differences(end_state(straight), end_state(solved)) == []
    assert records(straight) == records(solved)


def test_lower_goal_that_was_reached_before_ends_a_run_at_once(run: Run, tmp_path: Path) -> None:
    assert run(*DQN, *OFTEN, '--train-iter', '40')[0] == 0
    folder = tmp_path / 'cartpole_dqn_seed0'
    code, out, _ = run('--resume', str(folder), 'env.stop_value=1', '--train-iter', '80')
    assert code == 0 and 'solved: nothing is left to do' in out
    assert end_state(folder)['progress']['train_iter'] == 40


def test_finished_run_says_what_to_give_and_is_left_as_it_is(run: Run, solved: Path) -> None:
    before = {
        path: path.read_bytes() for path in solved.rglob('*') if path.is_file() and path.suffix != '.txt'
    }
    code, out, _ = run('--resume', str(solved), 'policy.learn.learning_rate=0.5')
    assert code == 0 and 'solved: nothing is left to do' in out
    for text in ('--train-iter', '--env-step', '20 updates', 'env.stop_value'):
        assert text in out
    assert before == {path: path.read_bytes() for path in before}
    with pytest.warns(UserWarning, match='nothing is left to do'):
        serial_pipeline(_pair(solved), resume_from=solved)
    assert before == {path: path.read_bytes() for path in before}


def test_repeated_command_of_a_queue_does_not_train_a_solved_run_on(run: Run, solved: Path) -> None:
    words = (*SOLVED, '--resume', 'auto')
    assert 'solved: nothing is left to do' in run(*words)[1]
    words = (*SOLVED, '--resume', 'auto', '--train-iter', '60')
    assert run(*words)[0] == 0
    assert 'budget of 60 updates is spent: nothing is left to do' in run(*words)[1]


def test_run_without_a_goal_is_done_and_not_unsolved(run: Run, tmp_path: Path) -> None:
    words = (
        *DQN,
        *OFTEN,
        'env.env_id=CliffWalking-v1',
        'env.wrappers=[{"type": "TimeLimit", "max_episode_steps": 20}]',
    )
    code, out, err = run(*words, 'env.stop_value=none', '--train-iter', '20')
    assert code == 0, err
    assert '\ndone: best evaluation' in out and 'solved' not in out


def test_where_nothing_was_evaluated_no_score_is_promised(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        'rlframe.worker.evaluator.serial_evaluator.InteractionSerialEvaluator.should_eval', lambda *_: False
    )
    monkeypatch.setattr('rlframe.pipeline.SerialPipeline._end', lambda *_: None)
    code, out, _ = run(*DQN, '--train-iter', '20')
    assert code == 0 and 'never evaluated' in out and 'evaluate:' not in out


def _pair(folder: Path) -> tuple[dict, dict]:  # type: ignore[type-arg]
    data = load_checkpoint(folder / 'ckpt' / 'latest')[1]['config']
    return data['main_config'], data['create_config']
