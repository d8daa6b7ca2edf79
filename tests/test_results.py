"""The measurements of docs/results.md: what is measured, skipped, resumed and shown."""

from __future__ import annotations

import importlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from runs import ROOT

from rlframe.data.formats import read_recording
from rlframe.errors import ConfigError

DOCS = ROOT / 'docs'
TINY = """\"\"\"DQN on CartPole-v1: not measured yet.\"\"\"

main_config = dict(
    exp_name='tiny',
    max_env_step=400,
    env=dict(env_id='CartPole-v1', collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=9),
    policy=dict(
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=8, update_per_collect=1),
        collect=dict(n_sample=4),
        eval=dict(evaluator=dict(eval_freq=20)),
    ),
)
create_config = dict(env=dict(type='gym'), policy=dict(type='dqn'), replay_buffer=dict(type='naive'))
"""


class Tool:
    """The modules of docs/make_results.py, with configs and records of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, self.page, self.queue, self.child, self.make = (
            importlib.import_module(name)
            for name in ('results_rows', 'results_page', 'results_queue', 'results_child', 'make_results')
        )
        self.work = folder / 'work'
        self.config, self.records = folder / 'tiny.py', folder / 'results.json'
        self.config.write_text(TINY, encoding='utf-8')
        self.records.write_text('{"runs": []}', encoding='utf-8')
        (folder / 'results_rows.json').write_text(
            json.dumps({'tiny': {'episodes': 3, 'published': [20, 'a book', 100]}}), encoding='utf-8'
        )
        for name, value in (
            ('CONFIGS', folder),
            ('RECORDS', self.records),
            ('ROWS', folder / 'results_rows.json'),
        ):
            monkeypatch.setattr(self.rows, name, value)
        monkeypatch.setattr(self.make, 'PAGE', folder / 'results.md')
        monkeypatch.setattr(self.make, 'PER_HOUR', folder / 'return_per_hour.md')
        monkeypatch.setattr(self.make, 'PICTURES', folder)

    @property
    def row(self) -> Any:
        return self.rows.read_rows()['tiny']

    def run(self, seed: int, mean: float, **more: Any) -> dict[str, Any]:
        """Returns a record as a child writes it."""
        facts = {'row': 'tiny', 'config': 'tiny', 'seed': seed, 'fingerprint': self.row.fingerprint}
        facts |= {
            'env_steps': 400,
            'updates': 90,
            'seconds': 9.0,
            'cpu_seconds': 2.0,
            'best': mean,
            'mean': mean,
        }
        facts |= {'std': 1.0, 'returns': [mean - 9, mean, mean, mean + 1], 'where': 'here'}
        return {**facts, 'curve': [[0, 9.0], [200, 20.0], [400, mean]], 'times': [0.0, 1.5, 3.0], **more}

    def record(self, *runs: dict[str, Any]) -> list[dict[str, Any]]:
        """Records runs, and returns all records."""
        self.rows.record(runs, self.rows.read_rows())
        found: list[dict[str, Any]] = self.rows.read_runs()
        return found

    def job(self, seed: int = 0) -> Any:
        return self.child.Job(
            self.row,
            seed,
            str(self.work / 'tiny'),
            str(self.work / 'done' / 'tiny.json'),
            self.row.fingerprint,
        )


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(DOCS))
    return Tool(tmp_path, monkeypatch)


class FakeChild:
    """Writes its record at once; seed 1 fails."""

    started: list[int] = []

    def __init__(
        self, name: str, module: str, arguments: tuple[str], data: bytes, on_line: Callable[[str], Any]
    ) -> None:
        job = json.loads(arguments[0])
        self.ended = 'EnvCrashedError: it broke' if job['seed'] == 1 else ''
        FakeChild.started.append(job['seed'])
        Path(job['folder']).mkdir(parents=True)
        Path(job['done']).parent.mkdir(exist_ok=True)
        if not self.ended:
            facts = {'row': 'tiny', 'config': 'tiny', 'seed': job['seed'], 'fingerprint': job['fingerprint']}
            Path(job['done']).write_text(json.dumps({**facts, 'mean': 1.0, 'cpu_seconds': 2.0}))

    def end(self, seconds: float) -> None:
        pass


def order(tool: Tool, *seeds: int) -> Any:
    return tool.queue.Order(list, seeds, tool.work)


@pytest.fixture
def fake(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    monkeypatch.setattr(tool.queue, 'ChildProcess', FakeChild)
    monkeypatch.setattr(tool.queue, 'POLL_SECONDS', 0)
    FakeChild.started = []
    return FakeChild


def test_finished_seeds_are_skipped_and_a_failure_stops_no_other(
    tool: Tool, fake: type[FakeChild], capsys: pytest.CaptureFixture[str]
) -> None:
    tool.record(tool.run(0, 5.0))
    assert tool.queue.Queue(order(tool, 0, 1, 2)).run() == 1
    assert fake.started == [1, 2]
    assert 'tiny seed 1 failed: EnvCrashedError: it broke' in capsys.readouterr().err
    assert [run['seed'] for run in tool.rows.read_runs()] == [0, 2]
    assert [path.name.split('-')[1] for path in tool.work.iterdir() if path.name != 'done'] == ['seed1']
    fake.started.clear()
    assert tool.queue.Queue(order(tool, 0, 2)).run() == 0 and not fake.started


def test_changed_settings_make_records_stale_and_changed_comments_do_not(tool: Tool) -> None:
    runs = [tool.run(seed, 5.0) for seed in range(3)]
    text = tool.config.read_text(encoding='utf-8')
    tool.config.write_text(text + '# a remark\n', encoding='utf-8')
    tool.record(*runs)
    assert not tool.queue.left(order(tool, 0, 1, 2))
    tool.config.write_text(text.replace('n_sample=4', 'n_sample=8'), encoding='utf-8')
    assert len(tool.queue.left(order(tool, 0, 1, 2))) == 3
    assert all(run['stale'] for run in tool.record())
    assert 'Measured with older settings, or only until the goal was reached: `tiny`.' in tool.page.page(
        tool.rows.read_runs(), tool.rows.read_rows()
    )
    done = tool.queue.done_file(tool.work, 'tiny-seed0')
    done.parent.mkdir(parents=True)
    done.write_text(json.dumps(runs[0]), encoding='utf-8')
    assert tool.queue.collect(tool.work) == 0  # it was measured with the settings of before
    new = [tool.run(seed, 7.0) for seed in range(3)]
    both = tool.record(*new[:2])
    assert [run['mean'] for run in tool.rows.shown(both)['tiny']] == [5.0] * 3
    assert [run['mean'] for run in tool.record(new[2])] == [7.0] * 3


def test_a_row_of_data_names_them_counts_updates_and_is_stale_when_they_change(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / 'data.json'
    table.write_text(json.dumps({'tiny_replay': {'sha256': 'a', 'return': 12.0}}), encoding='utf-8')
    monkeypatch.setattr(tool.rows, 'DATA', tmp_path / 'data')
    monkeypatch.setattr(tool.rows, 'DATA_TABLE', table)
    tool.rows.ROWS.write_text(json.dumps({'tiny': {'data': 'tiny_replay'}}), encoding='utf-8')
    assert f'collector.data={tmp_path}/data/tiny_replay.npz' in tool.child._words(tool.job())
    runs = tool.record(tool.run(0, 5.0))
    page = tool.page.page(runs, tool.rows.read_rows())
    assert '| 90 updates |' in page
    assert '`tiny`: from `tiny_replay`, whose episodes return 12.0.' in page
    table.write_text(json.dumps({'tiny_replay': {'sha256': 'b', 'return': 13.0}}), encoding='utf-8')
    assert len(tool.queue.left(order(tool, 0))) == 1
    facts = {'data': 'tiny_replay', 'data_option': 'replay_buffer.init_from'}
    tool.rows.ROWS.write_text(json.dumps({'tiny': facts}), encoding='utf-8')
    assert f'replay_buffer.init_from={tmp_path}/data/tiny_replay.npz' in tool.child._words(tool.job())
    page = tool.page.page(tool.record(tool.run(0, 5.0)), tool.rows.read_rows())
    assert '| 400 |' in page and 'from `tiny_replay`' in page


def test_data_of_a_row_are_refused_if_others_were_noted(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = importlib.import_module('make_data')
    columns = {'obs': np.zeros((2, 1)), 'action': np.zeros(2), 'episode': np.array([0, 1])}
    np.savez(tmp_path / 'tiny_medium.npz', **columns)
    np.savez(tmp_path / 'tiny_expert.npz', **columns)
    table = tmp_path / 'data.json'
    monkeypatch.setattr(data, 'DATA_TABLE', table)
    table.write_text(json.dumps({'tiny_expert': {'sha256': 'another'}}), encoding='utf-8')
    with raises(ConfigError):
        data.ready('tiny_expert', tmp_path)
    both = tmp_path / 'both.npz'
    data.join([tmp_path / 'tiny_medium.npz', tmp_path / 'tiny_expert.npz'], both)
    assert read_recording(both).columns['episode'].tolist() == [0, 1, 2, 3]


def test_unknown_rows_and_bad_numbers_are_refused_in_one_line(
    tool: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    with raises(ConfigError):
        tool.rows.chosen(tool.rows.read_rows(), ['tinny'])
    for words in (['tinny'], ['tiny', '--jobs', '0'], ['tiny', '--seeds', 'x'], ['tiny', '--minutes', '-1']):
        assert tool.make.main([*words, '--work', str(tool.work)]) == 2
        assert capsys.readouterr().err.count('\n') == 1
    assert not tool.work.exists()


@pytest.mark.slow
def test_a_run_goes_on_to_its_budget_and_is_scored(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tool.child._words(tool.job())
    assert words[words.index('--env-step') + 1] == '400' and 'env.stop_value=1e12' in words
    tool.child.main(tool.job().text())
    run = json.loads((tool.work / 'done' / 'tiny.json').read_text(encoding='utf-8'))
    assert run['env_steps'] == 400 and len(run['returns']) == 3 and run['best'] >= 9
    assert len(run['times']) == len(run['curve']) >= 3 and run['times'] == sorted(run['times'])
    assert run['fingerprint'] == tool.row.fingerprint
    monkeypatch.setattr(tool.child, 'rlframe', None)  # what is trained is not trained again
    (tool.work / 'done' / 'tiny.json').unlink()
    tool.child.main(tool.job().text())
    assert tool.queue.collect(tool.work) == 1 and not tool.queue.left(order(tool, 0))
    tool.make.write()
    assert 'return' in tool.config.read_text(encoding='utf-8').split('\n')[0]


def test_times_to_shares_of_the_published_return_are_cpu_seconds_and_medians(tool: Tool) -> None:
    # two ninths of the wall seconds are CPU seconds; the published return, 20, comes after 1.5 s of training
    runs = [tool.run(seed, mean) for seed, mean in enumerate((22.0, 24.0, 26.0))]
    slow = [run | {'curve': [[0, 9.0], [200, 13.0], [400, 19.0]]} for run in runs[:1]]
    per_hour = importlib.import_module('results_per_hour')
    assert per_hour.cpu_curve(runs[0])[1] == (pytest.approx(1 / 3), 200, 20.0)
    assert per_hour.first_at(runs[0], 20.0) == (pytest.approx(1 / 3), 200)
    rows = tool.rows.read_rows()
    line = per_hour.page([*slow, *runs[1:]], rows).splitlines()[-4]
    assert line.endswith('| 20.0 (a book, 100 env steps) | 0 | 0 | 0 | 200 | 24.0 (2 s) |')
    late = [run | {'seconds': 9.0, 'cpu_seconds': 90_000.0} for run in slow + runs[1:]]
    line = per_hour.page(late, rows).splitlines()[-4]
    assert line.endswith('| 0 | 15,000 | 15,000 | 200 | 9.0 |')
    never = [run | {'curve': [[0, 9.0], [200, 13.0], [400, 19.0]]} for run in runs[:2]]
    assert '| - | - |' in per_hour.page([*never, runs[2]], rows)


@pytest.mark.slow
def test_interrupted_runs_save_themselves_and_the_time_limit_ends_them(tool: Tool) -> None:
    tool.rows.ROWS.write_text(json.dumps({'tiny': {'env_steps': 10**7, 'episodes': 2}}), encoding='utf-8')
    queue = tool.queue.Queue(order(tool, 0))
    ask = queue._show

    def interrupt() -> None:
        ask()
        if tool.queue._envstep(
            tool.work / next(iter(queue.running)),
        ):
            os.kill(os.getpid(), signal.SIGTERM)

    queue._show = interrupt
    assert queue.run() == 128 + signal.SIGTERM
    (folder,) = [path for path in tool.work.iterdir()]
    steps = tool.queue._envstep(folder)
    assert steps and (folder / 'run' / 'ckpt' / 'latest').exists()
    limited = tool.queue.Order(list, [0], tool.work, minutes=0.001)
    assert tool.queue.Queue(limited).run() == 0
    (run,) = tool.rows.read_runs()
    assert run['env_steps'] >= steps and run['note'] == f'stopped after {run["seconds"] / 60:.1f} minutes'
