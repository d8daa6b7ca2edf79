"""IMPALA learns from actors that collect meanwhile: old weights are counted and limited, and a lost actor costs its data only."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from fault_envs import wait_until
from ray_runs import is_alive, is_conserved
from runs import records
from toys import toy

from rlframe.backend.ready import Ready, Staleness
from rlframe.config import compile_config
from rlframe.pipeline import SerialPipeline

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]
ASYNC = dict(backend='ray', num_collectors=2, sync=False, max_staleness=4)


def run(folder: Path, name: str, after_step: Any = None, **sections: Any) -> SerialPipeline:
    """Trains a toy with two actors that do not wait for the learner."""
    given = toy(name) | dict(collector=ASYNC, evaluator=dict(eval_freq=20), max_env_step=60_000) | sections
    cfg = compile_config(*config_pair(**given), seed=0)
    with SerialPipeline(cfg, folder) as pipeline:
        pipeline.run(after_step=after_step)
    return pipeline


@pytest.mark.parametrize('name', ['impala', pytest.param('appo', marks=pytest.mark.slow)])
def test_it_learns_from_older_weights_and_says_how_old_they_were(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = []
    delivered = Staleness.delivered

    def watched(self: Staleness, parts: list[Ready], newest: int) -> None:
        waited.extend(newest - ready.version - ready.during for ready in parts)
        delivered(self, parts, newest)

    monkeypatch.setattr(Staleness, 'delivered', watched)
    pipeline = run(tmp_path, name)
    seen = [record['ray/staleness_max'] for record in records(tmp_path) if 'ray/staleness_max' in record]
    assert pipeline.stopped and is_conserved(pipeline.collector)
    assert max(seen) > 0
    assert max(waited) <= ASYNC['max_staleness']  # how long its collection took does not count


def test_it_solves_its_env_after_an_actor_was_killed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    pids: set[int] = set()

    def kill_one(pipeline: SerialPipeline) -> bool:
        pool: Any = pipeline.collector._pool
        pids.update(slot.facts.pid for slot in pool.slots.values() if slot.facts is not None)
        if len(pids) == 2 and pipeline.progress.train_iter == 5:
            os.kill(pool.slots[1].facts.pid, signal.SIGKILL)
        assert is_conserved(pipeline.collector)
        return False

    slowly = dict(
        learn=dict(batch_size=None, learning_rate=1e-4), evaluator=dict(eval_freq=500)
    )  # so that it has to go on without it
    pipeline = run(tmp_path, 'impala', kill_one, **slowly)
    assert pipeline.stopped and is_conserved(pipeline.collector)
    assert pipeline.collector.lost > 0
    assert wait_until(lambda: not any(map(is_alive, pids)), 30)
