"""What a RayCollector asks of which actor, on a Ray without processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fake_ray import FakeRay, fake_ray

from rlframe.worker.collector.ray_collector import RayCollector
from rlframe.worker.collector.ray_pool import ActorPool


@pytest.fixture
def ray() -> Iterator[FakeRay]:
    with fake_ray() as ray:
        ray.seconds['collect'] = 1.0
        yield ray


def collector_of(count: int, frames: int = 6, **given: Any) -> RayCollector:
    return RayCollector('CartPole-v1', None, frames_per_batch=frames, num_collectors=count, **given)


def is_conserved(c: RayCollector) -> bool:
    return c.requested == c.delivered + c.lost + c.stale + c.in_flight


def ranks_of(batch: Any) -> list[int]:
    return np.unique(batch['rank']).tolist()


def test_no_actor_has_more_requests_than_it_may_and_none_is_passed_over(ray: FakeRay) -> None:
    c = collector_of(3, max_in_flight=2)
    seen = []
    for _ in range(12):
        ray.now += 100  # so that all are ready
        seen += ranks_of(c.next())
        assert is_conserved(c) and c._pool.load == {0: 2, 1: 2, 2: 2}
    assert seen == [0, 1, 2] * 4


def test_requests_under_way_are_listed_once_a_batch_however_many_actors_there_are(ray: FakeRay) -> None:
    ray.nodes_have = [{'CPU': 100.0}]
    listed = []
    own = ActorPool.calls.fget
    assert own is not None
    counted = property(lambda pool: listed.append(1) or own(pool))
    with mock.patch.object(ActorPool, 'calls', counted):
        for count in (2, 40):
            c = collector_of(count)
            listed.clear()
            c.next()
            assert len(listed) < 10
            c.shutdown()


def test_what_a_removed_actor_has_answered_is_kept(ray: FakeRay) -> None:
    c = collector_of(3, max_in_flight=2)
    for _ in range(2):
        ray.now += 100
        c.next()
    ray.now += 100
    c.remove_collectors([0, 1])
    assert is_conserved(c) and c.lost == 0 and not c._pool.load.keys() & {0, 1}
    kept = c._waiting
    assert kept >= 24
    batches = [c.next() for _ in range(kept // 6 + 2)]
    assert {rank for batch in batches for rank in ranks_of(batch)} == {0, 1, 2} and is_conserved(c)
