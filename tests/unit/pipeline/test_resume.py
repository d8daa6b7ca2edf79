"""Going on with a run: which one, from where, with what changed; locks; runs that ended before their first checkpoint; errors."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import edit_manifest
from error_texts import raises
from runs import DQN, ROOT, Run, assert_same_end, differences, end_state, records

from rlframe import config, open_run
from rlframe.entry.__main__ import main
from rlframe.errors import CheckpointCorruptError, ExperimentLockedError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import newest_run, resume
from rlframe.run import read_checkpoint as opened
from rlframe.run import run_folder
from rlframe.run.read_checkpoint import OpenCheckpoint, load_checkpoint
from rlframe.worker import LearnerHook, register_learner_hook

SAVES = 'policy.learn.learner.hook.save_ckpt_after_iter=20'


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to be copied."""
    folder = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(['-c', str(ROOT / DQN[1]), *DQN[2:], SAVES, '--train-iter', '40']) == 0
    return folder / 'cartpole_dqn_seed0'


@pytest.fixture
def stopped(trained: Path, cwd: Path) -> Path:
    """The folder of a run of 40 train iterations with checkpoints at 20 and 40."""
    return shutil.copytree(trained, cwd / trained.name, symlinks=True)


def test_resumed_run_with_fields_and_masks_equals_an_uninterrupted_one(run: Run, cwd: Path) -> None:
    words = (
        *(*DQN, SAVES, 'env.env_id=space_envs:SpaceEnv', 'env.kwargs={"obs": "Tuple", "mask": "info"}'),
        *('env.frame_stack=2', 'checkpoint.replay_buffer=incremental', 'replay_buffer.type=advanced'),
        *('policy.priority=true', 'policy.nstep=3', 'policy.eval.evaluator.eval_freq=20'),
    )
    for length in ('20', '40'):
        code, _, err = run(*words, '--train-iter', length)
        assert code == 0, err
    stopped, straight = cwd / 'cartpole_dqn_seed0', cwd / 'cartpole_dqn_seed0_1'
    code, _, err = run('--resume', str(stopped), '--train-iter', '40')
    assert code == 0, err
    one, other = end_state(straight), end_state(stopped)
    assert one['replay_buffer']['storage']['columns']['obs']['observation'].dtype.names == ('0', '1')
    for state in (one, other):  # the shorter run was evaluated when it ended
        del state['evaluator'], state['round']
    assert differences(one, other) == []


def test_resume_cuts_off_what_was_written_after_the_checkpoint(run: Run, stopped: Path) -> None:
    before, board = records(stopped), list((stopped / 'tensorboard').iterdir())
    sizes = load_checkpoint(stopped / 'ckpt' / 'latest')[1]['logs']
    with open(stopped / 'metrics.jsonl', 'a') as file:
        file.write('{"envstep": 1, "cut')
    with open(board[0], 'ab') as file:
        file.write(b'cut')
    (stopped / 'tensorboard' / 'events.out.tfevents.of.a.later.process').write_bytes(b'')
    assert run('--resume', str(stopped), '--train-iter', '60')[0] == 0
    after = records(stopped)
    assert after[: len(before)] == before and len(after) > len(before)
    assert board[0].stat().st_size == sizes[f'tensorboard/{board[0].name}']
    assert not (stopped / 'tensorboard' / 'events.out.tfevents.of.a.later.process').exists()


def test_older_checkpoint_goes_on_in_a_new_folder(run: Run, stopped: Path, cwd: Path) -> None:
    before = (stopped / 'metrics.jsonl').read_bytes()
    code, out, _ = run('--resume', str(stopped / 'ckpt' / 'iteration_20'), '--train-iter', '40')
    assert code == 0 and 'iteration_20' in out
    other = cwd / 'cartpole_dqn_seed0_1'
    assert (stopped / 'metrics.jsonl').read_bytes() == before
    assert records(other) == records(stopped)
    assert end_state(other)['progress'] == end_state(stopped)['progress']


def test_auto_begins_then_goes_on_then_says_that_nothing_is_left(run: Run, cwd: Path) -> None:
    words = (*DQN, SAVES, '--train-iter', '40', '--resume', 'auto')
    code, _, err = run(*words)
    assert code == 0 and 'starting a new one' in err
    code, out, _ = run(*words)
    assert code == 0 and 'nothing is left to do' in out
    assert [path.name for path in cwd.iterdir()] == ['cartpole_dqn_seed0']
    assert run(*words, 'policy.discount_factor=0.5')[0] == 0, 'another config is another run'
    assert len(list(cwd.iterdir())) == 2
    code, out, _ = run(*DQN, SAVES, '--train-iter', '60', '--resume', 'auto')
    assert code == 0 and 'cartpole_dqn_seed0/ckpt/iteration_40' in out
    assert len(list(cwd.iterdir())) == 2


def test_auto_with_a_name_means_the_folder_of_that_name(run: Run, cwd: Path) -> None:
    words = (*DQN, SAVES, '--train-iter', '20', '--resume', 'auto', '--exp-name', 'mine')
    assert run(*words)[0] == 0
    assert 'nothing is left' in run(*words)[1]
    assert [path.name for path in cwd.iterdir()] == ['mine']


def test_out_names_the_run_folder_wherever_it_is(run: Run, cwd: Path) -> None:
    words = (*DQN, SAVES, '--train-iter', '20', '--out', 'runs/deep/mine')
    code, out, err = run(*words)
    assert code == 0 and 'runs/deep/mine' in out, err
    assert 'nothing is left' in run(*words, '--resume', 'auto')[1]
    assert [str(path.relative_to(cwd)) for path in cwd.rglob('config.json')] == ['runs/deep/mine/config.json']
    (cwd / 'empty').mkdir(), (cwd / 'file').touch(), (cwd / 'full').mkdir(), (cwd / 'full' / 'x').touch()
    assert run(*words, '--out', 'empty')[0] == 0 and (cwd / 'empty' / 'ckpt' / 'latest').exists()
    refused = {
        'runs/deep/mine': 'the folder holds a run already',
        'full': 'the folder is not empty',
        'file': 'this is a file, not a folder',
        'file/run': 'cannot create the folder above the run folder: File exists',
    }
    for folder, says in refused.items():
        code, _, err = run(*words, '--out', folder)
        assert code == 2 and says in err and folder.partition('/')[0] in err, err
    for more, says in {
        ('--resume', 'runs/deep/mine'): 'leave out --out',
        ('--exp-name', 'x'): 'both name the run folder',
    }.items():
        code, _, err = run(*words, *more)
        assert code == 2 and says in err


@pytest.mark.parametrize('words', [(), DQN])
def test_changed_options_are_shown_and_may_change_or_are_refused(
    run: Run, stopped: Path, words: tuple[str, ...]
) -> None:
    hooks = () if not words else (SAVES,)
    code, _, err = run(
        '--resume', str(stopped), *words, *hooks, 'policy.learn.learning_rate=0.01', '--train-iter', '45'
    )
    assert code == 0 and 'policy.learn.learning_rate: 0.002 before, 0.01 now' in err
    code, _, err = run('--resume', str(stopped), *words, *hooks, 'env.collector_env_num=6', 'policy.nstep=2')
    assert code == 2
    for text in ('env.collector_env_num: 3 before, 6 now', 'policy.nstep: 1 before', 'init_from'):
        assert text in err


def test_seed_of_the_run_is_kept_unless_another_is_asked_for(run: Run, cwd: Path) -> None:
    assert run(*DQN, SAVES, '--train-iter', '20', '-s', '7')[0] == 0
    folder = str(cwd / 'cartpole_dqn_seed7')
    assert run('--resume', folder, *DQN, SAVES, '--train-iter', '22')[0] == 0
    code, _, err = run('--resume', folder, *DQN, SAVES, '-s', '8')
    assert code == 2 and 'seed: 7 before, 8 now' in err


# what is refused: rows 50 to 53, 56, 59


def test_lock_of_a_dead_process_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / '.lock').write_text('{"pid": 1, "host": "gone", "since": "then"}')
    release = run_folder.lock(tmp_path)
    with pytest.raises(ExperimentLockedError), open(tmp_path / '.lock') as file:
        assert json.load(file)['pid'] == os.getpid()
        run_folder.lock(tmp_path)
    release(), release()
    run_folder.lock(tmp_path)()


def test_lock_file_that_its_holder_deletes_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: Any) -> None:
    flock, calls = fcntl.flock, []

    def delete_first(file: Any, how: int) -> None:
        if not calls:
            (tmp_path / '.lock').unlink()
        calls.append(how)
        flock(file, how)

    monkeypatch.setattr(fcntl, 'flock', delete_first)
    release = run_folder.lock(tmp_path)
    assert len(calls) == 2
    with pytest.raises(ExperimentLockedError):
        run_folder.lock(tmp_path)
    release()


def test_resume_without_a_checkpoint_names_what_is_there(run: Run, cwd: Path, stopped: Path) -> None:
    target = cwd / 'target'
    target.mkdir()
    (target / 'notes.md').write_text('')
    for path, word in ((target, 'notes.md'), (stopped / 'ckpt' / 'best', 'only a policy')):
        code, _, err = run('--resume', str(path))
        assert code == 2 and word in err


def test_damaged_newest_checkpoint_falls_back_with_a_warning_unless_named(run: Run, stopped: Path) -> None:
    newest = stopped / 'ckpt' / 'iteration_40'
    tensors = next(newest.glob('tensors*'))
    damaged = bytearray(tensors.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    tensors.write_bytes(damaged)
    code, _, err = run('--resume', str(newest))
    assert code == 2 and 'CheckpointCorruptError' in err and tensors.name in err
    code, out, err = run('--resume', str(stopped))
    assert (
        code == 0 and 'iteration_20' in out and 'skipped a damaged checkpoint' in err and tensors.name in err
    )
    assert end_state(stopped)['progress']['train_iter'] == 40
    assert 'WARNING rlframe.pipeline: skipped a damaged checkpoint' in (stopped / 'log.txt').read_text()


def test_verified_bytes_are_used_even_if_the_files_change_afterwards(stopped: Path) -> None:
    path = stopped / 'ckpt' / 'iteration_40'
    expected, _ = load_checkpoint(path)
    saved = OpenCheckpoint(path)
    saved.verify()
    for file in path.iterdir():
        file.write_bytes(b'something else')
    state = saved.state()
    with pytest.raises(CheckpointCorruptError):
        saved.state()  # the bytes were released, and those on disk are not the verified ones
    assert state['progress'] == expected['progress'] and state['rng']['numpy'] == expected['rng']['numpy']


# a run that fails


@register_learner_hook('explode')
class Explode(LearnerHook):
    """Fails at a train iteration."""

    position, at = 'after_iter', 25

    def __call__(self, learner: Any) -> None:
        if learner.train_iter == self.at:
            raise RuntimeError('the hook exploded')


def test_error_leaves_its_traceback_in_the_log_and_an_emergency_checkpoint(run: Run, cwd: Path) -> None:
    hooks = "policy.learn.learner.hook={'save_ckpt_after_iter': 20, 'bang': {'type': 'explode'}}"
    with pytest.raises(RuntimeError, match='exploded') as caught:
        run(*DQN, hooks)
    folder = cwd / 'cartpole_dqn_seed0'
    log = (folder / 'log.txt').read_text()
    assert all(text in log for text in ('Traceback', 'RuntimeError: the hook exploded', "'train_iter': 25"))
    assert any('emergency checkpoint' in note for note in caught.value.__notes__)
    assert (folder / 'ckpt' / 'latest').resolve().name == 'iteration_20'
    state, _ = load_checkpoint(folder / 'ckpt' / 'emergency_iteration_25')
    assert state['progress']['train_iter'] == 25
    found = resume(folder)
    assert found.checkpoint.name == 'iteration_20', 'an emergency checkpoint is never taken by itself'
    named = folder / 'ckpt' / 'emergency_iteration_25'
    assert resume(named).folder == folder and 'an error ended' in resume(named).saved.manifest['inexact'][0]
    assert [open_run(path).progress.train_iter for path in (folder, named)] == [20, 25]
    assert not (folder / '.lock').exists()


# checkpoints of something else; the table of bad inputs has the damaged and dangerous ones


def made_for_another_env(path: Path) -> str:
    edit_manifest(path, lambda manifest: manifest.update(env='Acrobot-v1', policy='ppo'))
    return "policy: 'ppo' there, 'dqn' here; env: 'Acrobot-v1' there, 'CartPole-v1' here"


def with_other_spaces(path: Path) -> str:
    edit_manifest(path, lambda manifest: manifest.update(action_space='Discrete(5)'))
    return "action_space: 'Discrete(5)' there, 'Discrete(2)' here"


def with_another_network(path: Path) -> str:
    def widen(manifest: dict[str, Any]) -> None:
        manifest['config']['main_config']['policy']['model']['encoder_hidden_size_list'] = [32]

    edit_manifest(path, widen)
    return 'encoder.layers.0.weight: (16, 4) in the checkpoint, (32, 4) here'


@pytest.mark.parametrize('spoil', [made_for_another_env, with_other_spaces, with_another_network])
def test_spoiled_checkpoint_is_refused_by_the_command_line(
    run: Run, stopped: Path, spoil: Any, cwd: Path
) -> None:
    path = stopped / 'ckpt' / 'iteration_40'
    word = spoil(path)
    before = sorted(str(p) for p in cwd.rglob('*'))
    code, _, err = run('--resume', str(path))
    assert code == 2 and 'Traceback' not in err and 'CheckpointMismatchError' in err and word in err, err
    assert sorted(str(p) for p in cwd.rglob('*')) == before, 'nothing is left behind'


def test_full_disk_ends_the_run_and_the_checkpoint_before_stays(
    run: Run, cwd: Path, monkeypatch: Any
) -> None:
    link = os.symlink

    def full(*given: Any, **options: Any) -> None:
        if (cwd / 'cartpole_dqn_seed0' / 'ckpt' / 'iteration_40').exists():
            raise OSError(errno.ENOSPC, 'No space left on device')
        link(*given, **options)

    monkeypatch.setattr(os, 'symlink', full)
    code, _, err = run(*DQN, SAVES, '--train-iter', '60')
    assert code == 1 and 'CheckpointWriteError' in err and 'No space left' in err
    monkeypatch.setattr(os, 'symlink', link)
    assert run('--resume', 'cartpole_dqn_seed0')[0] == 0
    assert end_state(cwd / 'cartpole_dqn_seed0')['progress']['train_iter'] == 60


def test_what_a_resume_changes_is_recorded_with_the_values_before_and_after(
    run: Run, stopped: Path, cwd: Path
) -> None:
    rate = 'policy.learn.learning_rate'
    assert run('--resume', str(stopped), f'{rate}=0.01', '--train-iter', '50')[0] == 0
    code, _, err = run('--resume', str(stopped), f'{rate}=0.003', '--train-iter', '60')
    assert code == 0 and f'changed: {rate}: 0.01 before, 0.003 now' in err, 'not the value of the first start'
    log, told = (stopped / 'log.txt').read_text(), f'{rate}: 0.01 before, 0.003 now'
    assert f'{rate}: 0.002 before, 0.01 now' in log and told in log
    found = [record for record in records(stopped, with_changes=True) if 'changed' in record]
    assert [record[f'config/{rate}'] for record in found] == [0.01, 0.003]
    assert told in found[1]['changed'] and found[0]['envstep'] < found[1]['envstep']
    assert run('report', str(stopped))[0] == 0
    page = next(stopped.rglob('report.html')).read_text().replace('<wbr>', '')
    assert 'Changed on a resume' in page and told in page


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


def test_resume_of_a_folder_of_runs_says_how_they_are_resumed(refused: Callable[..., str], cwd: Path) -> None:
    (cwd / 'seeds' / NAME / 'ckpt').mkdir(parents=True)
    refused('train', '--resume', 'seeds')
    refused('eval', 'seeds')


def test_resume_of_a_run_without_a_checkpoint_says_how_it_begins_again(run: Run, killed: Path) -> None:
    code, _, err = run('--resume', str(killed))
    assert code == 2 and 'CheckpointNotFoundError' in err and '--resume auto' in err
    data = json.loads((killed / 'config.json').read_text())
    assert data['main_config']['max_train_iter'] == 20
