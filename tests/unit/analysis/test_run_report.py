"""The report on a run: self-contained, escaped, and right in its numbers; and the live page."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import open_page
from hypothesis import given
from hypothesis import strategies as st
from written_runs import write_run

from rlframe.analysis import findings
from rlframe.analysis.chart import POINTS, axis, thinned
from rlframe.analysis.findings import changed_options, films_of, warnings_of
from rlframe.analysis.live import HOST, make_server
from rlframe.analysis.page import write_report
from rlframe.analysis.run_files import RunFiles
from rlframe.entry.__main__ import main
from rlframe.scores import digits_text

EVIL = '<script>alert(1)</script>"\'&'
MORE = {
    **{'eval/std_reward': 2.0, 'eval/episodes': 4.0, 'eval/min_reward': 1.0, 'eval/max_reward': 9.0},
    **{
        'time/elapsed': 10.0,
        'time/collect': 1.0,
        'time/learn': 3.0,
        'time/evaluate': 4.0,
        'train/total_loss': 0.5,
    },
    'eval/mean_ep_length': 7.0,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose every text is hostile."""
    folder = write_run(
        tmp_path / 'run',
        [1.0, 5.0, 40.0],
        policy='dqn',
        env=EVIL,
        more={**MORE, f'train/{EVIL}': 1.0},
        note=EVIL,
    )
    lines = [f'2026-01-02 03:04:05,678 WARNING rlframe.x: {EVIL}'] * 2 + [
        '2026-01-02 03:04:05,678 INFO rlframe.x: no'
    ]
    (folder / 'log.txt').write_text('\n'.join(lines), encoding='utf-8')
    (folder / 'films').mkdir()
    (folder / 'films' / 'best.gif').write_bytes(b'GIF89a')
    return folder


def test_a_report_loads_nothing_and_escapes_all_text_of_the_run(run: Path) -> None:
    page = write_report(run).read_text(encoding='utf-8')
    assert '<script' not in page and '&lt;script&gt;alert(1)' in page
    assert "default-src 'none'" in page and not re.search(r'(src|href)="(?!data:)', page)
    assert not re.search(r'url\(|@import|https?://', page)


def test_a_report_says_what_matters(run: Path) -> None:
    page = write_report(run).read_text(encoding='utf-8')
    for text in (
        'goal reached after 200 env steps',
        'learn 38 % (3 s)',
        '(2 times)',
        'data:image/gif;base64,R0lGODlh',
    ):
        assert text in page, text
    assert '<td class="n">40</td><td class="n">3.7</td>' in page, (
        'a mean with its interval: 3.18 * 2 / sqrt(3)'
    )
    assert 'rlframe eval' in page and 'rlframe train --resume' in page and 'prefers-color-scheme:dark' in page


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
    found = {each.key: each for each in changed_options(RunFiles(folder))}
    assert found['policy.learn.learning_rate'][1:] == (0.002, 0.001, True)
    assert not found['policy.learn.my_option'].has_default and found['policy.model.type'].value == 'mine'
    assert 'seed' not in found and found['env.stop_value'].default is None


def test_films_that_links_lead_to_and_large_ones_are_left_out(run: Path, monkeypatch: Any) -> None:
    secret = run.parent / 'secret.gif'
    secret.write_bytes(b'secret')
    (run / 'link.gif').symlink_to(secret)
    (run / 'large.mp4').write_bytes(b'x' * 100)
    monkeypatch.setattr(findings, 'FILM_BYTES', 50)
    assert {film.name: bool(film.data) for film in films_of(run)} == {
        'films/best.gif': True,
        'large.mp4': False,
    }


def test_of_a_huge_log_the_end_is_read(run: Path, monkeypatch: Any) -> None:
    (run / 'log.txt').write_text(
        '2026-01-02 03:04:05,678 ERROR rlframe.x: early\n' + 'x' * 200, encoding='utf-8'
    )
    assert [each.text for each in warnings_of(run)] == ['early']
    monkeypatch.setattr(findings, 'LOG_BYTES', 100)
    assert warnings_of(run) == []


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_an_axis_covers_its_values_with_few_round_numbers(low: float, width: float) -> None:
    bottom, top, ticks = axis(low, low + width)
    slack = 1e-9 * max(abs(low), width, 1e-300)
    assert bottom <= low + slack and low + width <= top + slack
    assert 2 <= len(ticks) <= 16 and all(digits_text(tick) for tick in ticks)


def test_long_curves_keep_their_ends() -> None:
    (values,) = thinned(np.arange(10_000.0))
    assert (
        len(values) <= POINTS + 1 and (values[0], values[-1]) == (0.0, 9999.0) and (np.diff(values) > 0).all()
    )


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Address of the live page of the run ``live``, which has not begun."""
    server = make_server(tmp_path / 'live')
    thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01})
    thread.start()
    yield f'{HOST}:{server.server_address[1]}'
    server.shutdown()
    server.server_close()
    thread.join()


def ask(address: str, path: str, method: str = 'GET', host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request(method, path, headers={'Host': host or address})
    answer = connection.getresponse()
    text = answer.read().decode()
    assert 'unsafe-eval' not in (answer.getheader('Content-Security-Policy') or '')
    connection.close()
    return answer.status, text


def test_the_live_page_waits_for_its_run_follows_it_and_says_when_it_has_ended(
    address: str, tmp_path: Path
) -> None:
    state = json.loads(ask(address, '/state')[1])
    assert state['note'] == 'waiting for the run to begin'
    folder = write_run(tmp_path / 'live', [1.0])
    (folder / '.lock').write_text(
        json.dumps({'pid': os.getpid(), 'host': socket.gethostname()}), encoding='utf-8'
    )
    begun = json.loads(ask(address, f'/state?{state["version"].replace(" ", "%20")}')[1])
    assert begun['note'] == 'live' and 'running' in begun['body']
    again = json.loads(ask(address, f'/state?{begun["version"].replace(" ", "%20")}')[1])
    assert again['version'] == begun['version'] and again['body'] == ''
    with open(folder / 'metrics.jsonl', 'a', encoding='utf-8') as file:
        file.write('{"envstep": 777, "eval/mean_reward": 2}\n{"envstep": 8')
    (folder / '.lock').unlink()
    ended = json.loads(ask(address, '/state')[1])
    assert '777' in ended['body'] and ended['note'].startswith('the run has ended')


def test_the_live_server_answers_only_this_machine_only_get_and_only_its_paths(address: str) -> None:
    port = address.partition(':')[2]
    assert ask(address, '/')[0] == ask(address, '/', host=f'localhost:{port}')[0] == 200
    for host in ('evil.example', f'evil.example:{port}', HOST, f'{HOST}:1'):
        assert ask(address, '/state', host=host)[0] == 403, host
    for path in ('/../../etc/passwd', '/config.json', '/live.js/..'):
        assert ask(address, path)[0] == 404, path
    for method in ('POST', 'PUT', 'DELETE', 'OPTIONS'):
        assert ask(address, '/state', method)[0] == 501, method


def test_watch_refuses_a_port_that_is_none_and_a_file(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / 'file').touch()
    assert main(['watch', str(tmp_path / 'run'), '--port', '70000']) == 2
    assert main(['watch', str(tmp_path / 'file')]) == 2
    with socket.create_server((HOST, 0)) as taken:
        assert main(['watch', str(tmp_path / 'run'), '--port', str(taken.getsockname()[1])]) == 2
    assert capsys.readouterr().err.count('\n') == 3


@pytest.mark.slow
def test_a_browser_shows_a_report_without_a_request_or_an_error(run: Path) -> None:
    opened = open_page(write_report(run).as_uri(), run.parent)
    assert 'goal reached after 200 env steps' in opened.dom
    assert opened.console == [] and opened.requests == []


@pytest.mark.slow
def test_a_browser_shows_the_live_page_and_asks_only_its_server(address: str, run: Path) -> None:
    run.rename(run.parent / 'live')
    opened = open_page(f'http://{address}/', run.parent)
    assert 'goal reached after 200 env steps' in opened.dom and 'this page is final' in opened.dom
    assert opened.console == [] and all(url.startswith(f'http://{address}/') for url in opened.requests)
