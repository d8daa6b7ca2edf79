"""An actor pool on a Ray without processes: deadlines, losses, and who is asked when."""

from __future__ import annotations

from typing import Any

import pytest
from fake_ray import NEVER, FakeRay, make_pool

from rlframe.backend.ray.session import actor_resources
from rlframe.backend.worker import Request
from rlframe.errors import ResourceError, WorkerLostError
from rlframe.remote.supervisor import Supervisor


def started(**options: Any) -> Supervisor:
    pool = make_pool(**options)
    pool.start()
    return pool


def collect(pool: Supervisor, *ranks: int) -> None:
    for rank in ranks:
        pool.ask(rank, 'collect', Request(3, 0, 1), None, size=3)


def test_answers_that_waited_for_the_driver_beyond_their_deadline_are_taken_in_the_order_of_asking(
    ray: FakeRay,
) -> None:
    pool = started(num_collectors=4, collect_timeout=10.0)
    ray.seconds['collect'] = 1.0
    collect(pool, 2, 0, 3, 1)
    ray.now += 1000  # an evaluation
    assert [pool.wait().rank for _ in range(4)] == [2, 0, 3, 1]
    assert pool.restarts == 0 and pool.under_way == 0


def test_an_actor_that_hangs_is_lost_while_ready_ones_are_not(ray: FakeRay) -> None:
    pool = started(num_collectors=3, collect_timeout=10.0)
    ray.seconds = {'collect': 1.0, (1, 'collect'): NEVER}
    collect(pool, 0, 1, 2)
    ray.now += 1000
    calls = [pool.wait() for _ in range(3)]
    assert [(call.rank, call.lost) for call in calls] == [
        (0, ''),
        (2, ''),
        (1, 'no answer to collect within 10 s'),
    ]
    assert pool.restarts == 1 and not ray.of(1).is_alive and ray.of(0).is_alive


def test_each_of_several_requests_has_its_time_from_when_the_actor_begins_it(ray: FakeRay) -> None:
    pool = started(collect_timeout=10.0)
    ray.seconds['collect'] = 7.0
    collect(pool, 0, 0, 0, 0)
    assert [pool.wait().lost for _ in range(4)] == [''] * 4 and ray.now == 28
    for _ in range(6):  # what is done early gives nothing to what comes after it
        collect(pool, 0)
        assert not pool.wait().lost
    ray.seconds['collect'] = NEVER
    collect(pool, 0, 0)
    before = ray.now
    assert [bool(pool.wait().lost) for _ in range(2)] == [True] * 2 and 10 < ray.now - before < 12


def test_requests_of_an_actor_that_starts_wait_for_it(ray: FakeRay) -> None:
    pool = started(collect_timeout=10.0)
    ray.seconds = {'collect': NEVER, 'launch': 100.0}
    collect(pool, 0)
    assert pool.wait().lost
    ray.seconds['collect'] = 9.0
    collect(pool, 0, 0)
    assert [pool.wait().lost for _ in range(2)] == [''] * 2 and ray.of(0).incarnation == 1


def test_an_actor_may_be_removed_while_it_is_restarted(ray: FakeRay) -> None:
    pool = started(num_collectors=2, collect_timeout=10.0)
    ray.seconds = {'collect': 0.1, (1, 'collect'): NEVER, 'launch': 60.0}
    collect(pool, 1)
    assert pool.wait().lost
    collect(pool, 1)
    until = ray.now + 30
    while ray.now < until:
        assert pool.poll() is None
        ray.now += 0.1
    pool.remove(1)
    assert pool.calls == [] and pool.load == {}
    for _ in range(3):
        ray.now += 1000
        collect(pool, 0)
        assert pool.wait().rank == 0
    assert pool.restarts == 1


def test_an_actor_that_does_not_start_in_time_ends_the_run_with_what_is_free(ray: FakeRay) -> None:
    pool = started(num_collectors=3, collect_timeout=10.0, remote_configs={'num_cpus': 2})
    ray.nodes_have = [{'CPU': 5.0}]
    ray.seconds = {(1, 'collect'): NEVER, (1, 'launch'): NEVER}
    collect(pool, 1)
    assert pool.wait().lost
    collect(pool, 1)
    told = r'collector 1 \(Ray actor\) did not start within 120 s; actors need 3 x \{CPU: 2\}; free: CPU 0 of 5 on 1 node'
    with pytest.raises(WorkerLostError, match=told):
        pool.wait()
    assert pool.is_broken and pool.restarts == 1 and ray.now < 140


def test_a_kind_of_accelerator_is_a_resource_as_ray_counts_it(ray: FakeRay) -> None:
    given = {'num_gpus': 1, 'accelerator_type': 'A100'}
    assert actor_resources(given) == {'CPU': 1.0, 'GPU': 1.0, 'accelerator_type:A100': 0.001}
    ray.nodes_have = [{'CPU': 8.0, 'GPU': 2.0, 'accelerator_type:T4': 1.0}]
    with pytest.raises(ResourceError, match='accelerator_type:A100 0 of 0'):
        make_pool(remote_configs=given)
