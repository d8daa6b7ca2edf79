"""What clusters do to a run: a store that is too small, a driver that is killed, a node that is taken away."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fault_envs import wait_until
from ray_runs import descendants, is_alive, output_of
from runs import DQN, ROOT, records, train

pytestmark = pytest.mark.ray
SMALLEST_STORE = 75 * 2**20
"""Bytes; Ray takes no smaller one."""
OWN = {'num_cpus': 2, 'object_store_memory': SMALLEST_STORE, 'log_to_driver': False}
"""Arguments of ``ray.init`` for a Ray of a test's own."""


def run_script(code: str) -> str:
    """Runs a program in a process of its own, because a process has one Ray, and returns what it prints."""
    return output_of(Path.cwd(), '-c', code, path=[ROOT / 'tests', Path(__file__).parent], seconds=240)


STORE = f"""
import numpy as np
from ray_envs import WideEnv
from rlframe.worker import RayCollector

for rows, actors, sync in ((20, 2, False), (50, 1, True)):  # 40 MB each, four at a time; 100 MB
    options = dict(frames_per_batch=rows, num_collectors=actors, sync=sync, ray_init_config={OWN!r})
    if not sync:
        options['max_in_flight'] = 2
    taken = []  # none of which gives its place in the store away
    with RayCollector(WideEnv, **options) as collector:
        for _ in range(6):
            batch = collector.next()
            taken.append(batch)
            c = collector
            assert c.requested == c.delivered + c.lost + c.stale + c.in_flight and c.lost == 0
        for batch in taken:
            obs, next_obs = np.asarray(batch['obs']), np.asarray(batch['next_obs'])
            assert (obs == obs[:, :1]).all() and (next_obs[:, 0] == obs[:, 0] + 1).all()
            assert (np.diff(obs[:, 0]) == 1).all()
        print(sum(batch.nbytes() for batch in taken), c.delivered)
"""


@pytest.mark.slow
def test_batches_that_the_object_store_cannot_hold_arrive_whole() -> None:
    lines = [[int(word) for word in line.split()] for line in run_script(STORE).splitlines()]
    assert [delivered for _, delivered in lines] == [120, 300]
    assert all(size > 3 * SMALLEST_STORE for size, _ in lines)


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


NODES = """
from ray.cluster_utils import Cluster
from ray_envs import TellingEnv
from rlframe.worker import RayCollector

NODE = dict(num_cpus=1, object_store_memory=100 * 2**20)
cluster = Cluster(initialize_head=True, head_node_args=dict(NODE, include_dashboard=False))
for sync in (True, False):
    other = cluster.add_node(**NODE)
    options = dict(frames_per_batch=12, sync=sync, num_collectors=2, create_env_kwargs=dict(seconds=0.001))
    with RayCollector(TellingEnv, ray_init_config=dict(address=cluster.address), **options) as collector:
        c, produced, turn = collector, 0, 0
        while turn < 5 or c._pool.restarts == 0 or not all(actor.is_ready for actor in c.actor_states()):
            if turn == 5:
                cluster.remove_node(other)
                other = cluster.add_node(**NODE)
            produced += len(collector.next())
            assert c.requested == c.delivered + c.lost + c.stale + c.in_flight and c.delivered == produced
            turn += 1
        assert len(collector.next()) == 12 and 0 < c.lost <= 12 * c._pool.restarts
        print('survived', flush=True)
    cluster.remove_node(other)
cluster.shutdown()
"""


@pytest.mark.slow
def test_frames_are_conserved_when_a_node_is_taken_away() -> None:
    assert run_script(NODES).count('survived') == 2
