"""What clusters do to a run: a store that is too small, a driver that is killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_envs import wait_until
from one_ray import OPTIONS
from ray_envs import WideEnv
from ray_runs import descendants, is_alive
from runs import DQN, records, train

from rlframe.worker import RayCollector

pytestmark = pytest.mark.ray
OWN = {'num_cpus': 2, 'object_store_memory': OPTIONS['object_store_memory'], 'log_to_driver': False}
"""Arguments of ``ray.init`` for a Ray of a test's own."""


@pytest.mark.slow
def test_batches_that_the_object_store_cannot_hold_arrive_whole_and_leave_it(ray_of_tests: Any) -> None:
    def used() -> float:
        resources = ray_of_tests.cluster_resources(), ray_of_tests.available_resources()
        total, free = (each.get('object_store_memory', 0.0) for each in resources)
        return float(total - free)

    for rows, actors, sync in ((20, 2, False), (50, 1, True)):  # 40 MB each, four at a time; 100 MB
        taken = []  # none of which gives its place in the store away
        options: dict[str, Any] = {} if sync else {'max_in_flight': 2}
        options |= {'frames_per_batch': rows, 'num_collectors': actors, 'sync': sync}
        with RayCollector(WideEnv, **options) as c:
            for _ in range(4):
                taken.append(c.next())
                assert c.requested == c.delivered + c.lost + c.stale + c.in_flight and c.lost == 0
            assert c.delivered == 4 * rows
        for batch in taken:
            obs, next_obs = np.asarray(batch['obs']), np.asarray(batch['next_obs'])
            assert (obs == obs[:, :1]).all() and (next_obs[:, 0] == obs[:, 0] + 1).all()
            assert (np.diff(obs[:, 0]) == 1).all()
        assert sum(batch.nbytes() for batch in taken) > 2 * OWN['object_store_memory']
    assert wait_until(lambda: used() < 20e6, 30)


def is_a(what: bytes, pid: int) -> bool:
    try:
        return what in Path(f'/proc/{pid}/cmdline').read_bytes()
    except OSError:
        return False


@pytest.mark.slow
def test_driver_of_a_run_that_is_killed_leaves_no_process_of_its_own_behind(tmp_path: Path) -> None:
    """Ray's agents may take longer."""
    words = ('env_manager.type=subprocess', 'env_manager.worker_num=2', 'collector.num_collectors=2')
    own = f'collector.ray_init_config={OWN!r}'
    process = train(tmp_path, *DQN, *words, 'collector.backend=ray', own, '--train-iter', '1000000')
    try:
        limit = time.monotonic() + 120
        while not list(tmp_path.glob('*/metrics.jsonl')) or not records(next(tmp_path.iterdir())):
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.05)
        family = descendants(process.pid)
        env_workers = {pid for pid in family if is_a(b'env_worker', pid)}
        actors = {pid for pid in family if is_a(b'CollectorActor', pid)}
    finally:
        process.kill()
        process.communicate()
    assert len(actors) == 2 and len(env_workers) >= 4, 'two of each actor'
    assert wait_until(lambda: not any(map(is_alive, actors | env_workers)), 60)
