"""What every registered logger has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_logger.py``.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_names import names_of

from rlframe.registry import LOGGER_REGISTRY
from rlframe.run.logger import LoggedRun, Logger, Record
from rlframe.run.metric_writer import MetricWriter

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
