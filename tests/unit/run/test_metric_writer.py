"""MetricWriter and its loggers: each record reaches all of them, also after an interruption, and no server ends a run."""

from __future__ import annotations

import csv
import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from fakes import config_pair

from rlframe import config
from rlframe.errors import ConfigError, MissingDependencyError
from rlframe.pipeline.run_output import RunOutput
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.logger import LoggedRun, Logger, Record, RemoteLogger
from rlframe.run.metric_writer import MetricWriter

SENT: list[Record] = []


class Kept(Logger):
    """Keeps all records in this process."""

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        if record.values.get('bad'):
            raise OSError('disk full')
        self.records.append(record)


class Server(RemoteLogger):
    """Sends to a list; its server is gone if a record says so."""

    package = 'json'

    def __init__(self, cfg: Mapping[str, Any] | None, run: LoggedRun) -> None:
        super().__init__(cfg, run)
        self._save_id('x1', 'http://x')

    def _send(self, record: Record) -> None:
        if record.values.get('gone'):
            raise ConnectionError('no route to host')
        SENT.append(record)


@pytest.fixture(autouse=True)
def own_loggers() -> Iterator[None]:
    LOGGER_REGISTRY.register('kept', Kept)
    LOGGER_REGISTRY.register('server', Server)
    SENT.clear()
    yield
    for name in ('kept', 'server'):
        del LOGGER_REGISTRY._classes[name]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / 'metrics.csv', newline='') as file:
        return list(csv.DictReader(file))


def test_every_logger_gets_every_record_and_servers_the_names_of_the_tag_style(tmp_path: Path) -> None:
    writer = MetricWriter(tmp_path, 'di', loggers=['kept', 'server', {'type': 'csv'}])
    writer.write({'eval/mean_reward': 2, 'x': math.inf}, 7, train_iter=3)
    writer.add_scalar('y', 1.5, 8)
    writer.close()
    writer.close()
    kept: Any = writer.loggers['kept']
    assert [(r.envstep, r.values, r.facts) for r in kept.records] == [
        (7, {'eval/mean_reward': 2.0, 'x': math.inf}, {'train_iter': 3}),
        (8, {'y': 1.5}, {}),
    ]
    assert [*SENT[0].values] == ['evaluator_step/eval_episode_return_mean', 'x']
    first, second = lines(tmp_path)
    assert (first['eval/mean_reward'], first['x'], first['train_iter'], second['y']) == (2.0, None, 3, 1.5)
    assert [[*row.values()][:2] for row in table(tmp_path)] == [['7', '3'], ['8', '']]
    assert [(row['eval/mean_reward'], row['x'], row['y']) for row in table(tmp_path)] == [
        ('2.0', '', ''),
        ('', '', '1.5'),
    ]
    assert not (tmp_path / 'tensorboard').exists()


def test_a_server_that_is_gone_is_told_of_once_and_training_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = MetricWriter(tmp_path, loggers=['server', 'kept'])
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            writer.write({'gone': float(step == 1)}, step)
    assert [record.envstep for record in SENT] == [0] and len(lines(tmp_path)) == 3
    (told,) = caplog.messages
    assert "'server' is switched off" in told and 'no route to host' in told
    with pytest.raises(OSError, match='disk full'):  # a logger in this process does not fail in silence
        writer.write({'bad': 1.0}, 4)
    writer.close()


def test_a_server_that_cannot_be_reached_at_the_start_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Server, 'package', '/no/such/folder/x')
    writer = MetricWriter(tmp_path, loggers=['server'])
    writer.close()
    assert [*writer.loggers] == ['jsonl'] and 'FileNotFoundError' in caplog.text


def test_a_resumed_run_cuts_files_and_sends_nothing_twice(tmp_path: Path) -> None:
    loggers = ['csv', 'server']
    straight, cut = tmp_path / 'straight', tmp_path / 'cut'
    records = [{'a': float(i), **({'late': 1.0} if i == 3 else {})} for i in range(6)]
    for folder in (straight, cut):
        folder.mkdir()
        writer = MetricWriter(folder, loggers=loggers)
        for i, values in enumerate(records[: 6 if folder is straight else 4]):
            if i == 2:
                position = writer.state_dict()
            writer.write(values, i)
        writer.close()
    with open(cut / 'metrics.jsonl', 'a') as file:
        file.write('{"envstep": 4, "a')  # killed here
    sent = len(SENT)
    writer = MetricWriter(cut, position=json.loads(json.dumps(position)), loggers=loggers)
    for i in range(2, 6):
        writer.write(records[i], i)
    writer.close()
    assert [record.envstep for record in SENT[sent:]] == [4, 5]

    def known(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name != 'time'}

    assert [known(row) for row in lines(cut)] == [known(row) for row in lines(straight)]
    assert [known(row) for row in table(cut)] == [known(row) for row in table(straight)]
    assert (cut / 'json.json').read_text() == '{"id": "x1", "url": "http://x"}\n'


@pytest.mark.parametrize('text', ['', '[]', '{"id": "../x"}'])
def test_an_id_that_no_server_gives_begins_a_new_run(tmp_path: Path, text: str) -> None:
    (tmp_path / 'json.json').write_text(text)
    server = Server(None, LoggedRun(tmp_path, {}, repeated=5))
    server.write(Record(0, {}, {}, 0.0))
    assert len(SENT) == 1


@pytest.mark.parametrize(
    'value',
    [
        'tensorbord',
        ['csv', 'csv'],
        [dict(type='wandb', mode='on')],
        [dict(project='x')],
        [dict(type='csv', import_names=['x'])],
        5,
    ],
)
def test_a_wrong_logger_is_named_before_a_run_folder_is_made(value: Any) -> None:
    with raises(ConfigError):
        config.compile_config(*config_pair(loggers=value))


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('csv,wandb', ['csv', 'wandb']),
        ('[csv, wandb]', ['csv', 'wandb']),
        ('none', []),
        ("[dict(type='wandb',project='x'),'csv']", [{'type': 'wandb', 'project': 'x'}, 'csv']),
    ],
)
def test_loggers_are_chosen_on_the_command_line(text: str, value: list[Any]) -> None:
    cfg = config.compile_config(*config_pair(), overrides=[f'loggers={text}'])
    assert cfg.loggers == value
    assert config.compile_config(*config.split_config(cfg)).loggers == value


def test_a_missing_package_names_the_extra_and_leaves_nothing(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'wandb', None)
    cfg = config.compile_config(*config_pair(loggers=['wandb']))
    with raises(MissingDependencyError):
        RunOutput(cfg, None, None)
    assert list(cwd.iterdir()) == []
