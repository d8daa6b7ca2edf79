"""Run folders that somebody else filled, given to the commands that read runs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from written_runs import write_run

from rlframe.app import page as module
from rlframe.app.page import machine_facts, warnings_of
from rlframe.app.run_files import RunFiles
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


def test_no_verb_waits_for_a_pipe_in_a_run_folder(tmp_path: Path) -> None:
    folder = write_run(tmp_path / 'run')
    os.mkfifo(folder / 'log.txt')
    assert warnings_of(folder) == []
    os.mkfifo(folder / 'report.html')
    assert main(['report', str(folder)]) == 2
    assert not list(folder.glob('.tmp-*')), 'no draft is left'


def test_links_that_the_user_names_are_followed(tmp_path: Path) -> None:
    folder, page = write_run(tmp_path / 'run'), tmp_path / 'page.html'
    (tmp_path / 'link.html').symlink_to(page)
    assert main(['report', str(folder), '--out', str(tmp_path / 'link.html')]) == 0
    assert page.is_file() and (tmp_path / 'link.html').is_symlink()
    mode = os.stat(os.devnull).st_mode
    assert main(['report', str(folder), '--out', os.devnull]) == 2, 'a device is no file'
    assert os.stat(os.devnull).st_mode == mode


TEXT = '_$\\frac{\x1b]0;title\x07\ud800\n' + 'x' * 10_000
"""A broken formula, codes of terminals, half a character, and more than fits."""
HUGE = {'eval/std_reward': 1.7e308, f'train/{TEXT}': 2.0, 'train/sum': -1.7e308, 'time/elapsed': 1.7e308}


@pytest.mark.parametrize('verb', ['report', 'plot', 'compare'])
def test_every_text_and_number_of_a_run_can_be_shown(tmp_path: Path, verb: str, capfd: Any) -> None:
    text = TEXT if verb == 'report' else TEXT[:500]  # tables of others are as wide as their cells
    hostile: Any = dict(policy=text, env=text, more=HUGE, seed=int('9' * 400))
    runs = [write_run(tmp_path / name, [1.0, -1.7e308, 2.0], **hostile, x=name) for name in ('_a', '_b')]
    out = tmp_path / ('page.html' if verb == 'report' else 'picture.svg')
    assert main([verb, *map(str, runs[: 1 if verb == 'report' else 2]), '--out', str(out)]) == 0
    shown = out.read_text(encoding='utf-8') + capfd.readouterr().out
    assert '\x1b' not in shown and '\ud800' not in shown


@pytest.mark.parametrize('where', ['env', 'path'])
def test_an_error_is_one_line_without_codes_for_the_terminal(tmp_path: Path, capsys: Any, where: str) -> None:
    path = str(tmp_path / f'{TEXT[:19]}.') if where == 'path' else str(write_run(tmp_path / 'a'))
    assert main(['compare', path, str(write_run(tmp_path / 'b', env=TEXT[:50]))]) == 2
    error = capsys.readouterr().err
    assert error.count('\n') == 1 and error.strip().isprintable()


def test_a_manifest_of_wrong_types_is_shown_as_far_as_it_goes(tmp_path: Path, monkeypatch: Any) -> None:
    facts = {'machine': {'cpu': TEXT[:30]}, 'exact': False, 'inexact': [1]}
    monkeypatch.setattr(module, 'open_checkpoint', lambda folder: SimpleNamespace(manifest=facts))
    assert all(text.isprintable() for text in machine_facts(RunFiles(write_run(tmp_path / 'run'))).values())
