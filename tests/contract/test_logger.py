"""What every registered logger has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_logger.py``.
"""

from __future__ import annotations

import csv
import inspect
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from error_texts import raises

from rlframe.errors import ConfigError
from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.logger import LoggedRun, Logger, Record
from rlframe.run.metric_writer import FIRST, MetricWriter

SERVERS = ('wandb', 'mlflow')
"""Loggers whose packages are slow to import."""
CONFIG = {'main_config': {'seed': 1, 'policy': {'learn': {'batch_size': 8}}}, 'create_config': {}}


def names() -> list[Any]:
    """Returns the loggers to check."""
    every = names_of(LOGGER_REGISTRY)
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SERVERS else []) for name in every]


@pytest.fixture(params=names())
def cls(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv('WANDB_MODE', 'disabled')
    monkeypatch.setenv('MLFLOW_TRACKING_URI', (tmp_path / 'ml').as_uri())
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')  # needs no database, which takes seconds to create
    if request.param in SERVERS:
        pytest.importorskip(request.param)
    return LOGGER_REGISTRY.get(request.param)


@pytest.mark.filterwarnings('ignore::DeprecationWarning', 'ignore::FutureWarning')
def test_takes_all_that_a_run_writes(cls: Any, tmp_path: Path) -> None:
    assert (
        issubclass(cls, Logger) and inspect.getdoc(cls) and cls.reaches in ('', 'network', 'file', 'process')
    )
    cls.check(cls.resolve_config({}))
    folder = tmp_path / 'run'
    for _ in range(2):  # the second continues the first
        folder.mkdir(exist_ok=True)
        logger = cls(None, LoggedRun(folder, CONFIG))
        logger.write(Record(0, {'eval/mean_reward': 1.0}, {'train_iter': 0}, 1e9))
        logger.write(Record(5, {'a/b c': math.nan, 'x': math.inf, 'Ünï(1)': -1.5}, {}, 1e9 + 1))
        logger.write(Record(5, {}, {}, 1e9 + 2))
        logger.add_histogram('train/q', np.arange(5.0), 5)
        logger.flush()
        logger.close()
        logger.close()
    assert {path.name for path in tmp_path.iterdir()} <= {'run', 'ml'}, 'a logger writes to the run folder'


def test_is_chosen_by_its_name(cls: Any, tmp_path: Path) -> None:
    name = next(name for name in LOGGER_REGISTRY.names() if LOGGER_REGISTRY.get(name) is cls)
    if name not in SERVERS:
        writer = MetricWriter(tmp_path, loggers=[name])
        assert type(writer.loggers[name]) is cls
        writer.close()


CONFUSABLE = ('a b', 'a_b', 'a(b', '/a', 'a/', 'a//b', 'a/b', '.', '..', './a', 'ü', '', 'x' * 300, 'x' * 301)
"""Names that a logger with few characters could take for one another, or not take at all."""


def of_tensorboard(folder: Path) -> dict[str, float]:
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (folder / 'tensorboard').iterdir()
    data, at, found = file.read_bytes(), 0, {}
    while at < len(data):  # a record has its length, a sum, itself and another sum
        length = int.from_bytes(data[at : at + 8], 'little')
        event = Event.FromString(data[at + 12 : at + 12 + length])
        found |= {value.tag: value.simple_value for value in event.summary.value}
        at += length + 16
    return found


def of_csv(folder: Path) -> dict[str, float]:
    rows = csv.DictReader((folder / 'metrics.csv').read_text(encoding='utf-8').splitlines())
    return {tag: float(value) for row in rows for tag, value in row.items() if tag not in FIRST}


def of_mlflow(folder: Path) -> dict[str, float]:
    import mlflow

    run = json.loads((folder / 'mlflow.json').read_text())['id']
    return dict(mlflow.MlflowClient().get_run(run).data.metrics)


READERS = {'tensorboard': of_tensorboard, 'csv': of_csv, 'mlflow': of_mlflow}


@pytest.mark.filterwarnings('ignore::DeprecationWarning', 'ignore::FutureWarning')
def test_no_two_names_become_one(cls: Any, tmp_path: Path) -> None:
    name = next(name for name in LOGGER_REGISTRY.names() if LOGGER_REGISTRY.get(name) is cls)
    values = {tag: float(number) for number, tag in enumerate(CONFUSABLE)}
    (tmp_path / 'run').mkdir()
    writer = MetricWriter(
        tmp_path / 'run', loggers=[name], config={'main_config': dict.fromkeys(CONFUSABLE, 1)}
    )
    with raises(ConfigError):
        writer.write({'time': 1.0}, 5)
    writer.write(values, 5)
    writer.close()
    assert name in writer.loggers, 'it is not switched off'
    if name in READERS:
        assert sorted(READERS[name](tmp_path / 'run').values()) == sorted(values.values())
