"""Run folders that somebody else filled: nothing is written through the links in them."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from error_texts import raises
from foreign import reseal

from rlframe import config
from rlframe.app.run_files import find_runs
from rlframe.entry.__main__ import main
from rlframe.errors import (
    CheckpointCorruptError,
    CheckpointNotFoundError,
    ExperimentDirError,
    UnsafeCheckpointError,
)
from rlframe.export import export_policy
from rlframe.pipeline.resume import newest_run, resume
from rlframe.run.read_checkpoint import find_checkpoint, verify_checkpoint
from rlframe.run.write_checkpoint import link_checkpoint


@pytest.fixture
def run(small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it in an empty working directory."""
    folder = tmp_path / 'work' / small_run.name
    shutil.copytree(small_run, folder, symlinks=True)
    monkeypatch.chdir(folder.parent)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that is not to be changed."""
    file = tmp_path / 'victim'
    file.write_text('precious')
    return file


def newest(run: Path) -> Path:
    return (run / 'ckpt' / 'latest').resolve()


def test_a_lock_is_no_way_out_of_a_run_folder(run: Path, victim: Path) -> None:
    reseal(newest(run))
    (run / '.lock').symlink_to(victim)
    with pytest.raises(ExperimentDirError):
        resume(run)
    assert victim.read_text() == 'precious'
    (run / '.lock').unlink()
    (run / '.lock').write_text('\x1b]0;title\x07' + 'x' * 10**6)
    notes = ''.join(resume(run).notes)
    assert notes.isprintable() and len(notes) < 1000


def test_links_to_files_beside_ones_own_checkpoint_are_not_written_through(
    run: Path, victim: Path, tmp_path: Path
) -> None:
    assert verify_checkpoint(newest(run)).is_own
    for name in ('log.txt', 'ckpt/iteration_9'):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(victim)
        with raises(UnsafeCheckpointError):
            resume(run)
        (run / name).unlink()
    shutil.move(run / 'tensorboard', tmp_path / 'other disk')
    (run / 'tensorboard').symlink_to(tmp_path / 'other disk')
    assert resume(run).folder == run
    reseal(newest(run))
    shutil.rmtree(run / 'export')
    (run / 'export').symlink_to(tmp_path)
    with raises(UnsafeCheckpointError):
        export_policy(newest(run))
    assert victim.read_text() == 'precious'


def test_an_unbegun_folder_in_the_working_directory_is_not_written_through(victim: Path, cwd: Path) -> None:
    folder = cwd / 'x_seed0'
    folder.mkdir()
    pair = {'exp_name': 'x', 'env': {'env_id': 'CartPole-v1'}}, {'policy': {'type': 'dqn'}}
    cfg = config.compile_config(*pair)
    config.write_total_config(folder, *config.split_config(cfg))
    (folder / 'log.txt').symlink_to(victim)
    with raises(UnsafeCheckpointError):
        newest_run(cfg)
    (folder / 'log.txt').unlink()
    assert newest_run(cfg) == folder


def test_file_named_like_a_checkpoint_of_ding_is_that_file_or_an_error(run: Path) -> None:
    found = newest(run)
    named = found.with_name(f'{found.name}.pth.tar')
    assert find_checkpoint(named) == found
    named.write_bytes(b'weights')
    with raises(CheckpointCorruptError):
        find_checkpoint(named)


# copies, trackers and searches


def test_run_whose_links_were_followed_when_it_was_copied_resumes_trains_and_saves(
    small_run: Path, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cwd / small_run.name
    shutil.copytree(small_run, folder)
    links = [entry.name for entry in (small_run / 'ckpt').iterdir() if entry.is_symlink()]
    assert links and not any((folder / 'ckpt' / name).is_symlink() for name in links)
    more = int(newest(small_run).name.rpartition('_')[2]) + 10
    code = main(['train', '--resume', str(folder), '--train-iter', str(more)])
    assert code == 0, capsys.readouterr().err
    assert (folder / 'ckpt' / 'latest').is_symlink()
    best = next((folder / 'ckpt').glob('best_*'))
    link_checkpoint(best, 'best')
    assert (folder / 'ckpt' / 'best').resolve() == best.resolve()
    assert [entry.name for entry in cwd.iterdir()] == [folder.name], 'it goes on in its own folder'
    assert not [entry for entry in (folder / 'ckpt').iterdir() if entry.name.startswith('.')]


def test_links_that_a_tracker_leaves_in_its_own_folder_are_its_own(run: Path, victim: Path) -> None:
    (run / 'wandb').mkdir()
    (run / 'wandb' / 'debug.log').symlink_to(victim)
    assert resume(run).folder == run
    reseal(newest(run))
    assert resume(run).folder == run
    shutil.rmtree(run / 'wandb')
    (run / 'wandb').symlink_to(victim.parent)
    with raises(UnsafeCheckpointError):
        resume(run)


def test_foreign_checkpoint_is_not_judged_by_what_lies_beside_it(
    run: Path, victim: Path, tmp_path: Path
) -> None:
    downloads = tmp_path / 'Downloads'
    shutil.copytree(newest(run), downloads / 'mail' / 'theirs')
    reseal(downloads / 'mail' / 'theirs')
    (downloads / 'unrelated').symlink_to(victim)
    (downloads / 'metrics.jsonl').symlink_to(victim)
    assert resume(downloads / 'mail' / 'theirs').folder is None
    limits = ['--train-iter', '1000', '--env-step', '1']
    assert main(['train', '--resume', str(downloads / 'mail' / 'theirs'), *limits]) == 0
    assert all('precious' not in path.read_text() for path in Path.cwd().rglob('metrics.jsonl'))
    assert main(['export', str(downloads / 'mail' / 'theirs')]) == 0
    assert victim.read_text() == 'precious'


def test_search_and_its_trials_stand_for_their_checkpoints_and_runs(run: Path, tmp_path: Path) -> None:
    search = tmp_path / 'search'
    for trial, count in (('trial_a', 2), ('trial_b', 1)):
        shutil.copytree(run, search / trial / 'run')
        for number in range(count):
            shutil.copytree(newest(run), search / trial / f'checkpoint_00000{number}' / 'latest')
    (search / 'search.json').write_text('{}')
    (search / 'config.json').write_text('{}')
    (search / 'trials.csv').write_text('trial,score\ntrial_a,2\ntrial_b,1\n')
    best = search / 'trial_a' / 'checkpoint_000001' / 'latest'
    assert find_checkpoint(search) == find_checkpoint(search / 'trial_a') == best.resolve()
    assert find_checkpoint(search / 'trial_b') == (search / 'trial_b/checkpoint_000000/latest').resolve()
    assert sorted(each.parent.name for each in find_runs([search])) == ['trial_a', 'trial_b']
    (search / 'trials.csv').write_text('trial,score\n../../elsewhere,2\n')
    with pytest.raises(CheckpointNotFoundError):
        find_checkpoint(search)


FILES = (
    'log.txt',
    'metrics.jsonl',
    'config.json',
    'total_config.py',
    'mlflow.json',
    'wandb.json',
    'metrics.csv',
)


@pytest.mark.parametrize(
    ('name', 'make'),
    [
        *((name, os.mkfifo) for name in (*FILES, 'tensorboard/events.1')),
        *((name, os.mkdir) for name in ('metrics.jsonl', 'tensorboard/events.1')),
        *(pytest.param(name, os.mkdir, marks=pytest.mark.slow) for name in FILES if name != 'metrics.jsonl'),
    ],
)
def test_something_in_the_place_of_a_file_is_refused_or_left_alone_without_a_wait(
    name: str, make: Callable[[Path], None], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hangs(*_: object) -> None:
        raise AssertionError('it waits for the file')

    file = run / name
    file.unlink(missing_ok=True)
    make(file)
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(60)
    try:
        code = main(['--resume', str(run), '--train-iter', '3'])
        others = [main(['report', str(run)]), main(['check-config', str(run / 'total_config.py')])]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    err = capsys.readouterr().err
    assert (code == 0) if file.parent != run and make is os.mkdir else (code == 2 and str(file) in err)
    assert set(others) <= {0, 2} and file.exists()
