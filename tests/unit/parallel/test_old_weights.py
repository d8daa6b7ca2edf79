"""IMPALA in parallel mode: it learns while collectors collect, and data of weights that are too old are discarded and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import config_pair
from toys import toy

from rlframe import config
from rlframe.data import Batch
from rlframe.errors import ConfigError
from rlframe.parallel.coordinator.assembly import TrainingData
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.parallel.transport.base import joined, split


def compiled(name: str, *overrides: str) -> Any:
    main, create = config_pair(**toy(name) | dict(evaluator=dict(eval_freq=40), max_env_step=60_000))
    here = dict(type='in_process')
    create |= dict(commander=dict(type='solo'), comm_collector=here, comm_learner=here)
    few = ('parallel.coordinator.wait=0.005', 'env.collector_env_num=4', 'env.evaluator_env_num=4')
    return config.compile_config(main, create, seed=0, overrides=[*few, *overrides], parallel=True)


def test_it_learns_from_collectors_that_do_not_wait_for_it(cwd: Path) -> None:
    with ParallelPipeline(compiled('impala', 'parallel.coordinator.max_staleness=4')) as pipeline:
        pipeline.run()
        assert pipeline.stopped
        c = pipeline.coordinator
        assert c.received == c.pushed + c.dropped
        records = [json.loads(line) for line in (pipeline.folder / 'metrics.jsonl').read_text().splitlines()]
    seen = [record['parallel/staleness'] for record in records if 'parallel/staleness' in record]
    assert seen and max(seen) > 0
    assert all('parallel/stale' in record for record in records if 'parallel/staleness' in record)


def part(train_iter: int, rows: int = 3) -> Any:
    data = Batch(obs=np.ones((rows, 2), np.float32), collect_iter=np.full(rows, train_iter))
    return joined(data, {'statistics': [train_iter]})


def test_parts_that_are_too_old_are_discarded_but_not_what_comes_with_them() -> None:
    data = TrainingData(None, max_staleness=2)
    for train_iter in (0, 1, 4, 5):
        data.push(3, part(train_iter), envstep=0)
    assert data.due == 4
    count, payload = data.draw(train_iter=4)
    rows, extras = split(payload)
    assert count == 1 and rows['collect_iter'].tolist() == [4, 4, 4]
    assert extras == {'statistics': [0, 1, 4]} and data.stale == 6
    data.report(1)
    assert data.due == 1
    other = TrainingData(None, max_staleness=2)
    other.load_state_dict(data.state_dict())
    assert other.stale == 6 and other.due == 1
    assert other.draw(train_iter=9) == (0, None) and other.stale == 9 and other.due == 0


def test_the_age_of_replayed_rows_is_limited_by_their_buffer() -> None:
    with pytest.raises(ConfigError, match=r'max_staleness: .*replay buffer; got 3, expected None') as caught:
        compiled('dqn', 'parallel.coordinator.max_staleness=3')
    assert 'policy.other.replay_buffer.max_staleness' in str(caught.value)
