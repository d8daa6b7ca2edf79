"""How long a run collects, learns and evaluates, and the machine that it runs on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runs import ROOT, SMALL

from rlframe.config import compile_config, read_config
from rlframe.pipeline import SerialPipeline
from rlframe.run import progress as time_split
from rlframe.run.machine import machine
from rlframe.run.progress import KINDS, TimeSplit
from rlframe.run.read_checkpoint import open_checkpoint

CONFIG = ROOT / 'configs' / 'cartpole_ppo.py'
QUICK = ('policy.learn.batch_size=16', 'policy.collect.n_sample=48', 'policy.learn.epoch_per_collect=1')


def test_each_lap_counts_the_time_since_the_last_call(monkeypatch: Any) -> None:
    clock = iter([0.0, 10.0, 11.0, 13.0, 20.0, 24.0])
    monkeypatch.setattr(time_split, 'perf_counter', lambda: next(clock))
    times = TimeSplit()
    times.start()
    times.lap('collect')
    times.lap('learn')
    times.start()
    times.lap('learn')
    assert times.seconds() == {'collect': 1.0, 'learn': 6.0, 'evaluate': 0.0}
    again = TimeSplit.__new__(TimeSplit)
    again._seconds = dict.fromkeys(KINDS, 0.0)
    again.resume(times.seconds())
    assert again.metrics() == {'time/collect': 1.0, 'time/learn': 6.0, 'time/evaluate': 0.0}


def test_a_run_records_its_time_split_and_continues_it_when_it_resumes(cwd: Path) -> None:
    pair = read_config(str(CONFIG))

    def run(updates: int, **how: Any) -> Path:
        cfg = compile_config(*pair, overrides=[*SMALL, *QUICK, f'max_train_iter={updates}'])
        with SerialPipeline(cfg, **how) as pipeline:
            pipeline.run()
            return pipeline.folder

    folder = run(60)
    saved = open_checkpoint(folder / 'ckpt' / 'latest').manifest
    assert set(saved['seconds']) == set(KINDS) and all(value > 0 for value in saved['seconds'].values())
    assert sum(saved['seconds'].values()) >= 0.9 * saved['progress']['wall_time']
    assert saved['machine'] == machine()
    run(120, folder=folder, resume=folder / 'ckpt' / 'latest')
    records = [
        json.loads(line) for line in (folder / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
    ]
    for kind in KINDS:
        values = [record[f'time/{kind}'] for record in records if f'time/{kind}' in record]
        assert values == sorted(values) and len(values) >= 3
        assert open_checkpoint(folder / 'ckpt' / 'latest').manifest['seconds'][kind] > saved['seconds'][kind]


def test_the_machine_is_described_without_names_of_host_and_user() -> None:
    facts = machine()
    assert {'processor', 'system', 'Python', 'torch', 'numpy', 'gymnasium'} == set(facts)
    assert facts['processor'].endswith('cores') and len(facts['processor']) > len(', 2 cores')
