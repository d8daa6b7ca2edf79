"""The report on a run: self-contained, escaped, and right in its numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from written_runs import write_run

from rlframe.app import figure
from rlframe.app.page import changed_options, write_report
from rlframe.app.run_files import SavedRun
from rlframe.entry.__main__ import main

EVIL = '<script>alert(1)</script>"\'&'
MORE = {
    **{f'eval/{name}_reward': value for name, value in (('std', 2.0), ('min', 1.0), ('max', 50.0))},
    **{f'time/{name}': value for name, value in (('collect', 1.0), ('learn', 3.0), ('evaluate', 4.0))},
    **{'time/elapsed': 10.0, 'train/total_loss': 0.5, 'eval/mean_ep_length': 7.0, 'eval/episodes': 4.0},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose every text is hostile."""
    more = {**MORE, f'train/{EVIL}': 1.0}
    folder = write_run(tmp_path / 'run', [1.0, 5.0, 40.0], env=EVIL, more=more, note=EVIL)
    time = '2026-01-02 03:04:05,678'
    lines = [
        f'{time} WARNING rlframe.x: {EVIL}',
        f'{time} WARNING rlframe.x: {EVIL}',
        f'{time} INFO rlframe.x: no',
    ]
    (folder / 'log.txt').write_text('\n'.join(lines), encoding='utf-8')
    return folder


def test_a_report_says_what_matters_loads_nothing_and_escapes_all_text_of_the_run(run: Path) -> None:
    page = write_report(run).read_text(encoding='utf-8')
    assert '<script' not in page and '&lt;script&gt;alert(1)' in page
    assert "default-src 'none'" in page and not re.search(r'(src|href)="(?!data:)', page)
    assert not re.search(r'url\(|@import|https?://', page)
    assert 'rlframe eval' in page and 'rlframe train --resume' in page and 'prefers-color-scheme:dark' in page
    for text in (
        'goal reached after 200 env steps',
        '<td>learn</td><td>38 %</td><td>3 s</td>',
        '(2 times)',
        '<td>40</td><td>36.3 to 43.7</td>',  # a mean with its interval: 3.18 * 2 / sqrt(3)
    ):
        assert text in page, text


def test_a_report_of_a_run_that_has_only_begun_can_be_written(tmp_path: Path, capsys: Any) -> None:
    folder = write_run(tmp_path / 'run', [])
    assert main(['report', str(folder), '--out', str(tmp_path / 'page.html')]) == 0
    assert capsys.readouterr().out == f'{tmp_path / "page.html"}\n'
    assert 'No evaluation yet' in (tmp_path / 'page.html').read_text(encoding='utf-8')
    assert main(['report', str(tmp_path)]) == 2
    assert 'this is no run folder' in capsys.readouterr().err


def test_changed_options_are_named_with_their_defaults_and_nothing_is_imported(tmp_path: Path) -> None:
    folder = write_run(tmp_path / 'run', learning_rate=0.002, my_option=3)
    config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    config['main_config']['policy'] |= {'model': {'import_names': ['no_such_module'], 'type': 'mine'}}
    (folder / 'config.json').write_text(json.dumps(config), encoding='utf-8')
    found = {key: values for key, *values in changed_options(SavedRun(folder))}
    assert found['policy.learn.learning_rate'] == ['0.002', '0.001']
    assert found['policy.learn.my_option'] == ['3', ''] and found['policy.model.type'][0] == 'mine'
    assert 'seed' not in found and found['env.stop_value'][1] == 'null'


def test_a_page_without_matplotlib_leaves_the_curves_out_and_says_so(
    run: Path, monkeypatch: Any, capsys: Any
) -> None:
    assert write_report(run).read_text(encoding='utf-8').count('data:image/svg+xml') >= 1
    monkeypatch.setattr(figure.importlib.util, 'find_spec', lambda name: None)
    assert main(['report', str(run)]) == 0
    page = (run / 'report.html').read_text(encoding='utf-8')
    assert 'svg+xml' not in page and 'Curves need matplotlib: pip install' in page and '36.3 to 43.7' in page
