"""Run folders that somebody else filled, given to the commands that read runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from written_runs import write_run

from rlframe.entry.__main__ import main

WRITERS = {'report': ('report.html',), 'plot': ('plot.png', 'plot.svg')}
"""Verbs that write into a run folder, and what they write."""


@pytest.mark.parametrize('verb', WRITERS)
def test_no_verb_writes_through_a_link_in_a_run_folder(tmp_path: Path, verb: str) -> None:
    folder, victim = write_run(tmp_path / 'run'), tmp_path / 'victim'
    victim.write_text('precious', encoding='utf-8')
    victim.chmod(0o644)
    for name in WRITERS[verb]:
        (folder / name).symlink_to(victim)
    assert main([verb, str(folder)]) == 0
    assert victim.read_text(encoding='utf-8') == 'precious' and victim.stat().st_mode & 0o777 == 0o644
    assert all((folder / name).is_file() and not (folder / name).is_symlink() for name in WRITERS[verb])


def test_links_that_the_user_names_are_followed(tmp_path: Path) -> None:
    folder, page = write_run(tmp_path / 'run'), tmp_path / 'page.html'
    (tmp_path / 'link.html').symlink_to(page)
    assert main(['report', str(folder), '--out', str(tmp_path / 'link.html')]) == 0
    assert page.is_file() and (tmp_path / 'link.html').is_symlink()
    mode = os.stat(os.devnull).st_mode
    assert main(['report', str(folder), '--out', os.devnull]) == 2, 'a device is no file'
    assert os.stat(os.devnull).st_mode == mode
