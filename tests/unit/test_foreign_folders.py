"""Run folders that somebody else filled: nothing is written through the links in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from foreign import reseal

from rlframe import config
from rlframe.checkpoint import verify_checkpoint
from rlframe.errors import ExperimentDirError, UnsafeCheckpointError
from rlframe.pipeline.resume import resume, unbegun_run


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
    (run / 'log.txt').unlink(missing_ok=True)
    (run / 'log.txt').symlink_to(victim)
    with pytest.raises(UnsafeCheckpointError, match='leads out of the run folder'):
        resume(run)
    (run / 'log.txt').unlink()
    shutil.move(run / 'tensorboard', tmp_path / 'other disk')
    (run / 'tensorboard').symlink_to(tmp_path / 'other disk')
    assert resume(run).folder == run


def test_an_unbegun_folder_in_the_working_directory_is_not_written_through(
    victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / 'x_seed0'
    folder.mkdir()
    (folder / 'log.txt').symlink_to(victim)
    cfg = config.compile_config(
        {'exp_name': 'x', 'env': {'env_id': 'CartPole-v1'}}, {'policy': {'type': 'dqn'}}
    )
    with pytest.raises(UnsafeCheckpointError, match='leads out'):
        unbegun_run(cfg)
    (folder / 'log.txt').unlink()
    assert unbegun_run(cfg) == folder
