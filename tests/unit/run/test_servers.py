"""W&B and MLflow, without a network: what their own files hold after a run, and after it was interrupted and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair

from rlframe import config
from rlframe.pipeline import SerialPipeline

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings('ignore::DeprecationWarning', 'ignore::FutureWarning'),
]
BLOCK, HEAD = 32_768, 7


def payloads(path: Path) -> Iterator[bytes]:
    """Yields the records of a file of W&B, which has the format of LevelDB's log."""
    data, part, at = path.read_bytes(), b'', HEAD
    while at < len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], 'little'), data[at + 6]
        part += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (1, 4):  # whole, or the last of several
            yield part
            part = b''


def of_wandb(folder: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    """Returns the runs and the history that W&B keeps for an upload."""
    from wandb.proto import wandb_internal_pb2

    runs, history = [], []
    for path in sorted(folder.glob('wandb/offline-run-*/*.wandb')):
        for payload in payloads(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(payload)
            if record.HasField('run'):
                runs.append(record.run)
            if record.HasField('history'):
                items = record.history.item
                history.append(
                    {'/'.join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
                )
    return runs, history


def train(loggers: list[Any], rounds: int, resume: Path | None = None) -> Path:
    """Trains some rounds and returns the run folder; the last two rounds are after its checkpoint."""
    cfg = config.compile_config(*config_pair(loggers=loggers), seed=1)
    with SerialPipeline(cfg, folder=resume, resume=resume and resume / 'ckpt' / 'latest') as pipeline:
        for i in range(rounds):
            if i == rounds - 2:
                pipeline.checkpoints.save_latest()
            pipeline.step()
        return pipeline.folder


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]


def known(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if not k.startswith(('time', '_')) and v is not None}


def test_wandb_has_the_records_of_the_run_once_and_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip('wandb')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('WANDB_MODE', 'offline')
    folder = train([dict(type='wandb', project='p', tags=['t'])], 20)
    folder = train([dict(type='wandb', project='p', tags=['t'])], 8, resume=folder)
    wandb.teardown()  # its own process writes the file; only its end says that all is written
    runs, history = of_wandb(folder)
    assert {(run.run_id, run.display_name, run.project) for run in runs} == {
        (json.loads((folder / 'wandb.json').read_text())['id'], folder.name, 'p')
    }
    given = {update.key: update.value_json for update in runs[0].config.update}
    assert json.loads(given['main_config'])['policy']['learn']['batch_size'] == 16
    written = records(folder)
    assert len(written) > 20 and [known(row) for row in history] == [known(row) for row in written]


def test_mlflow_has_the_numbers_of_the_run_once_and_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip('mlflow')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('MLFLOW_TRACKING_URI', (tmp_path / 'ml').as_uri())
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')  # needs no database, which takes seconds to create
    folder = train([dict(type='mlflow', experiment='e')], 20)
    folder = train([dict(type='mlflow', experiment='e')], 8, resume=folder)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name('e').experiment_id])
    assert run.info.run_id == json.loads((folder / 'mlflow.json').read_text())['id']
    assert run.info.run_name == folder.name and run.info.status == 'FINISHED'
    assert run.data.params['policy.learn.batch_size'] == '16'
    for tag in ('eval/mean_reward', 'train/total_loss', 'rollout/interval_rew_mean'):
        told = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, tag)]
        assert sorted(told) == sorted((row['envstep'], row[tag]) for row in records(folder) if tag in row), (
            tag
        )
