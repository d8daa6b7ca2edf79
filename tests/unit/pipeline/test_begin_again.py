"""Run folders that are being written to, and those of runs that ended before their first checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from runs import DQN, ROOT, Run, assert_same_end

from rlframe import config
from rlframe.errors import ExperimentLockedError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import newest_run, resume
from rlframe.run import read_checkpoint as opened
from rlframe.run import run_folder

WORDS = (*DQN, 'policy.eval.evaluator.eval_freq=5', '--train-iter', '20')
NAME = 'cartpole_dqn_seed0'


def _compiled(*more: str) -> config.ResolvedConfig:
    overrides = [word for word in WORDS if '=' in word] + list(more)
    pair = config.read_config(str(ROOT / 'configs' / 'cartpole_dqn.py'))
    return config.compile_config(*pair, overrides=overrides, max_train_iter=20)


@pytest.fixture
def killed(run: Run, tmp_path: Path) -> Path:
    """What a run leaves that is killed after two evaluations, before its first checkpoint."""
    os.chdir(tmp_path)
    pipeline = SerialPipeline(_compiled())
    while pipeline.evaluations < 2:
        pipeline.step()
    pipeline.writer.flush()
    pipeline.cleanup()
    assert (pipeline.folder / 'ckpt' / 'best').exists() and not list(pipeline.folder.glob('ckpt/iteration*'))
    (pipeline.folder / '.lock').write_text('{"pid": 1, "host": "gone", "since": "then"}')
    return pipeline.folder


def test_run_that_is_being_written_is_locked_before_a_checkpoint_is_looked_for(
    run: Run, killed: Path
) -> None:
    release = run_folder.lock(killed)
    with raises(ExperimentLockedError):
        resume(killed)
    with pytest.raises(ExperimentLockedError):
        resume(killed / 'ckpt')
    code, _, err = run('--resume', str(killed))
    assert code == 2 and 'ExperimentLockedError' in err and 'CheckpointNotFound' not in err
    code, _, err = run(*WORDS, '--resume', 'auto')
    assert code == 2 and 'ExperimentLockedError' in err
    assert [path.name for path in killed.parent.iterdir()] == [NAME], 'no run began beside it'
    assert run('eval', str(killed), '-n', '1')[0] == 0, 'scoring needs no lock'
    assert newest_run(_compiled('policy.discount_factor=0.5')) is None, 'it is passed over by another config'
    release()


def test_checkpoint_is_read_while_the_lock_is_held(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*WORDS)[0] == 0
    folder, seen = tmp_path / NAME, []
    read = opened.read_checked

    def watched(path: Path, *given: Any) -> bytes:
        with pytest.raises(ExperimentLockedError):
            run_folder.lock(folder)
        seen.append(path.name)
        return read(path, *given)

    monkeypatch.setattr(opened, 'read_checked', watched)
    assert run('--resume', str(folder), '--train-iter', '22')[0] == 0
    assert 'state.json' in seen and len(seen) == len(set(seen)) and not (folder / '.lock').exists()


def test_resume_tells_of_a_process_that_died_with_the_run_folder(run: Run, tmp_path: Path) -> None:
    assert run(*WORDS)[0] == 0
    (tmp_path / NAME / '.lock').write_text('{"pid": 4711}')
    code, _, err = run('--resume', str(tmp_path / NAME), '--train-iter', '22')
    assert code == 0 and 'ended without cleaning up' in err and '4711' in err
    assert 'ended without cleaning up' in (tmp_path / NAME / 'log.txt').read_text()


def test_auto_begins_a_run_again_that_has_no_checkpoint(run: Run, killed: Path, tmp_path: Path) -> None:
    code, out, err = run(*WORDS, '--resume', 'auto')
    assert code == 0 and f'{NAME} ended before its first checkpoint; starting again in the same folder' in err
    assert f'Results: {NAME}' in out and [path.name for path in tmp_path.iterdir()] == [NAME]
    assert run(*WORDS)[0] == 0
    assert_same_end(tmp_path / f'{NAME}_1', tmp_path / NAME)
    names = [{path.name for path in (tmp_path / run / 'ckpt').iterdir()} for run in (NAME, f'{NAME}_1')]
    assert names[0] == names[1]
    assert len(list((tmp_path / NAME / 'tensorboard').iterdir())) == 1


@pytest.mark.parametrize('name', ['notes.md', 'config.json'])
def test_auto_leaves_alone_what_is_not_of_this_config(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / name).write_text('{}')
    code, _, err = run(*WORDS, '--resume', 'auto')
    assert code == 0 and 'starting a new one' in err
    assert [path.name for path in (tmp_path / NAME).iterdir()] == [name]


def test_auto_prefers_a_run_with_a_checkpoint_and_keeps_what_an_error_left(run: Run, killed: Path) -> None:
    (killed / 'ckpt' / 'emergency_iteration_10').mkdir()
    assert run(*WORDS, '--resume', 'auto')[0] == 0
    assert (killed / 'ckpt' / 'emergency_iteration_10').exists()
    younger = killed.with_name(f'{NAME}_1')
    younger.mkdir()
    (younger / 'config.json').write_bytes((killed / 'config.json').read_bytes())
    assert 'nothing is left to do' in run(*WORDS, '--resume', 'auto')[1]
    start = newest_run(_compiled())
    assert start is not None and start.path.parent.parent == killed


def test_resume_of_a_run_without_a_checkpoint_says_how_it_begins_again(run: Run, killed: Path) -> None:
    code, _, err = run('--resume', str(killed))
    assert code == 2 and 'CheckpointNotFoundError' in err and '--resume auto' in err
    data = json.loads((killed / 'config.json').read_text())
    assert data['main_config']['max_train_iter'] == 20
