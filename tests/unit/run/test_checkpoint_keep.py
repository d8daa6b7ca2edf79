"""How many checkpoints stay, which never go, and what a crash leaves behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import edit_manifest, newest_good, payload, save_run, state
from error_texts import raises

from rlframe.errors import CheckpointWriteError
from rlframe.run.read_checkpoint import find_checkpoint, load_checkpoint
from rlframe.run.write_checkpoint import (
    clean_leftovers,
    keep,
    link_checkpoint,
    publish_checkpoint,
    save_checkpoint,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save_best(folder: Path, number: int, score: float | None) -> Path:
    path = folder / f'best_iteration_{number}'
    return publish_checkpoint(path, state(number), {'score': score}, name='best', options={'keep_best': 2})


def test_the_newest_states_and_the_best_policies_stay(tmp_path: Path) -> None:
    for number in range(1, 6):
        save_run(tmp_path, [number], keep_last=3)
    assert names(tmp_path) == ['iteration_3', 'iteration_4', 'iteration_5', 'latest']
    for number, score in ((1, 5.0), (2, None), (3, 9.0), (4, float('nan')), (5, 7.0)):
        save_best(tmp_path, number, score)
    assert [name for name in names(tmp_path) if name.startswith('best_')] == [
        'best_iteration_3',
        'best_iteration_5',
    ]
    assert find_checkpoint(tmp_path) == tmp_path / 'best_iteration_5'
    assert (
        newest_good(tmp_path)[0]
        == newest_good(tmp_path.parent / tmp_path.name)[0]
        == tmp_path / 'iteration_5'
    )


def test_the_newest_is_the_one_saved_last_not_the_one_with_the_largest_number(tmp_path: Path) -> None:
    save_run(tmp_path, [100, 200])
    save_run(tmp_path, [150])  # as after a resume from an older one
    assert newest_good(tmp_path) == (tmp_path / 'iteration_150', [])
    assert keep(tmp_path, keep_last=1) == [tmp_path / 'iteration_200', tmp_path / 'iteration_100']


def test_what_a_name_points_to_and_what_the_run_did_not_name_stays(tmp_path: Path) -> None:
    save_run(tmp_path, [1, 2, 3, 4])
    for name in ('emergency_iteration_9', 'mine', 'best_iteration_1', 'best_iteration_2'):
        save_checkpoint(tmp_path / name, state())
    (tmp_path / 'iteration_notes').mkdir()
    (tmp_path / 'iteration_7').write_text('a file')
    (tmp_path / 'first').symlink_to('iteration_1')
    (tmp_path / 'best').symlink_to('best_iteration_1')
    assert newest_good(tmp_path)[0] == tmp_path / 'iteration_4'
    gone = keep(tmp_path, keep_last=1, keep_best=1)
    assert sorted(path.name for path in gone) == ['iteration_2', 'iteration_3']
    assert {'iteration_1', 'iteration_notes', 'iteration_7', 'emergency_iteration_9', 'mine'} <= set(
        names(tmp_path)
    )
    assert {'best_iteration_1', 'best_iteration_2'} <= set(names(tmp_path))


def test_the_names_are_set_in_one_step_and_a_disk_that_refuses_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_run(tmp_path, [1, 2])

    def refuse(*args: Any) -> None:
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patch:
        patch.setattr(os, 'replace', refuse)
        with raises(CheckpointWriteError):
            link_checkpoint(tmp_path / 'iteration_1', 'latest')
    assert names(tmp_path) == ['iteration_1', 'iteration_2', 'latest']
    assert (tmp_path / 'latest').resolve() == tmp_path / 'iteration_2'
    with monkeypatch.context() as patch:
        patch.setattr(os, 'rename', refuse)
        with raises(CheckpointWriteError):
            keep(tmp_path, keep_last=1)
    assert newest_good(tmp_path) == (tmp_path / 'iteration_2', [])


def test_leftovers_of_a_dead_process_go_and_a_replaced_checkpoint_comes_back(tmp_path: Path) -> None:
    save_run(tmp_path, [1, 2, 3])
    (tmp_path / '.tmp-iteration_4-abc').mkdir()
    (tmp_path / '.tmp-iteration_4-abc' / 'state.json').write_text('{')
    (tmp_path / '.tmp-latest-abc').symlink_to('iteration_2')
    (tmp_path / 'iteration_3').rename(tmp_path / '.old-iteration_3-0123')
    save_checkpoint(tmp_path / 'other', state())
    (tmp_path / 'other').rename(tmp_path / '.old-iteration_1-0123')
    (tmp_path / 'notes.txt').touch()
    assert not (tmp_path / 'latest').exists()
    assert len(clean_leftovers(tmp_path)) == 4
    assert names(tmp_path) == ['iteration_1', 'iteration_2', 'iteration_3', 'latest', 'notes.txt']
    assert load_checkpoint(tmp_path / 'latest')[0]['progress'] == {'train_iter': 3}
    assert clean_leftovers(tmp_path) == clean_leftovers(tmp_path / 'nowhere') == []


def test_a_damaged_or_dangerous_neighbour_hinders_nobody(tmp_path: Path) -> None:
    save_run(tmp_path, [1, 2])
    (tmp_path / 'iteration_1' / 'manifest.json').write_bytes(payload(tmp_path / 'marker'))
    save_run(tmp_path, [3], keep_last=1)
    edit_manifest(tmp_path / 'iteration_3', lambda m: m.update(serial='many'))
    save_run(tmp_path, [4])
    assert names(tmp_path) == ['iteration_1', 'iteration_3', 'iteration_4', 'latest']
    path, damaged = newest_good(tmp_path)
    assert path == tmp_path / 'iteration_4' and {p.name for p, _ in damaged} == {'iteration_1', 'iteration_3'}
