"""What a RayCollector asks of which actor, on a Ray without processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fake_ray import NEVER, FakeRay, fake_ray
from ray.exceptions import GetTimeoutError

from rlframe.errors import ActorLostError, ResourceError
from rlframe.worker.collector.ray_actor import failure_of
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
    kept = c._ready.size
    assert kept >= 24
    batches = [c.next() for _ in range(kept // 6 + 2)]
    assert {rank for batch in batches for rank in ranks_of(batch)} == {0, 1, 2} and is_conserved(c)


def test_a_rank_is_never_given_twice_and_who_joins_gets_the_newest_weights(ray: FakeRay) -> None:
    c = collector_of(2, sync=True)
    c.next()
    c.remove_collectors([1])
    assert c.add_collectors() == [2]
    assert ranks_of(c.next()) == [0, 2]
    assert ray.of(2).weights[0] is not None and c.versions == [1, 1]
    c.remove_collectors([2])
    assert c.add_collectors(num_envs=2) == [3, 4]


def test_who_joins_later_acts_at_random_while_the_others_do(ray: FakeRay) -> None:
    c = collector_of(1, init_random_frames=100, sync=True)
    c.next()
    (rank,) = c.add_collectors()
    c.next()
    assert [(request.at_random, request.reset_policy) for request in ray.of(rank).requests] == [(True, True)]


def test_env_factories_are_those_of_their_ranks(ray: FakeRay) -> None:
    def sizes(c: RayCollector) -> list[int]:
        specs = [c._pool.make.factory(rank).spec for rank in range(c._pool.next_rank)]
        return [spec.observation_space.shape[0] for spec in specs]

    cart, car = 'CartPole-v1', 'MountainCar-v0'  # obs of 4 and of 2 numbers
    c = collector_of(2)
    c.remove_collectors([1])
    c.add_collectors(car)
    c.add_collectors()
    c.remove_collectors([2, 3])
    with pytest.raises(ResourceError):
        c.add_collectors('Acrobot-v1', num_envs=9)
    c.add_collectors(cart, num_envs=2)
    assert sizes(c) == [4, 4, 2, 2, 4, 4]


def test_an_actor_that_cannot_join_leaves_everything_as_it_was(ray: FakeRay) -> None:
    c = collector_of(1)
    make = c._pool.make
    ray.answers['launch'] = failure_of(ZeroDivisionError('no such env'))
    with pytest.raises(ZeroDivisionError):
        c.add_collectors('MountainCar-v0')
    assert [actor.rank for actor in c.remote_collectors()] == [0] and c._pool.make is make
    del ray.answers['launch']
    assert c.add_collectors(num_envs=7) == [2, 3, 4, 5, 6, 7, 8], 'the CPU is free again'


def test_ranks_and_incarnations_go_on_from_a_state(ray: FakeRay) -> None:
    c = collector_of(2, collect_timeout=10.0)
    c.remove_collectors([1])
    c.add_collectors()
    c.next()
    c._pool._lose(c._pool.slots[0], 'it is gone')
    c.next()
    state = c.state_dict()
    c.shutdown()
    other = collector_of(2, collect_timeout=10.0)
    other.load_state_dict(state)
    assert [actor.incarnation for actor in other.remote_collectors()] == [1, 0]
    other._pool._lose(other._pool.slots[0], 'it is gone')
    other.next()
    ray.now += 100
    other.next()
    assert ray.of(0).incarnation == 2 and other.add_collectors() == [3]


def test_what_came_before_an_exception_waits_for_the_next_call(ray: FakeRay) -> None:
    c = collector_of(3)
    c.next()
    ray.now += 100
    ray.of(0).refs[-1].value = failure_of(ZeroDivisionError('in an env'))
    with pytest.raises(ZeroDivisionError):
        c.collect(18)
    assert (c.requested, c.delivered, c.lost, c._ready.size) == (36, 6, 6, 12) and is_conserved(c)
    ray.now += 100
    with mock.patch.object(c, 'on_step', side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        c.collect(30)
    assert c.delivered == 6 and c.lost == 6 and is_conserved(c)
    batch = c.collect(30)
    assert len(batch) == 30 and ranks_of(batch) == [0, 1, 2] and c.delivered == 36
    assert c.lost == 6 and is_conserved(c)


def test_nothing_that_was_taken_is_dropped_when_the_last_actor_fails(ray: FakeRay) -> None:
    c = collector_of(3)
    ray.seconds = {'collect': 1.0, (2, 'collect'): 7.0}
    c.next()
    ray.of(2).refs[-1].value = failure_of(ZeroDivisionError('in an env'))
    with pytest.raises(ZeroDivisionError):
        c.collect(600)
    kept = c._ready.size
    assert kept >= 60 and c.delivered == 6 and c.lost == 6 and is_conserved(c)
    before = [*c._ready]
    batch = c.collect(kept)
    assert batch['rank'].tolist() == [rank for ready in before for rank in ready.data['rank']]


@pytest.mark.parametrize('is_sync', [True, False])
def test_losses_that_end_the_run_are_counted_once_also_in_the_last_checkpoint(
    ray: FakeRay, is_sync: bool
) -> None:
    c = collector_of(3, sync=is_sync, collect_timeout=10.0, max_actor_restarts=0)
    c.next()
    ray.seconds = {'collect': 1.0, (2, 'collect'): NEVER}
    with pytest.raises(ActorLostError):
        for _ in range(50):
            c.next()
    assert is_conserved(c)
    requested, delivered, lost, stale = c.state_dict()['counts']
    assert requested == delivered + lost + stale + c._ready.size and c._pool.under_way > 0


def test_lost_data_that_end_the_run_are_counted(ray: FakeRay) -> None:
    c = collector_of(1, max_actor_restarts=0)
    c.next()
    with (
        mock.patch.object(ray, 'get', side_effect=[ray.of(0).refs[-1].value, GetTimeoutError()]),
        pytest.raises(ActorLostError, match='data of Ray actor 0 were lost'),
    ):
        c.next()
    assert c.lost == 6 and is_conserved(c)


def test_random_frames_are_shared_by_all_actors_and_no_more_than_are_missing(ray: FakeRay) -> None:
    c = collector_of(4, frames=40, init_random_frames=200, max_in_flight=2)
    assert len(c.next()) == 40
    asked = {rank: [r for r in ray.of(rank).requests if r.at_random] for rank in range(4)}
    assert all(asked.values())
    assert sum(request.target for own in asked.values() for request in own) == 200
    for _ in range(8):
        c.next()
    random = [r.target for rank in range(4) for r in ray.of(rank).requests if r.at_random]
    assert sum(random) == 200 and max(random) == 40 and is_conserved(c)
    few = collector_of(4, frames=40, init_random_frames=10)
    few.next()
    assert [few._pool.slots[rank].actor.requests[0].target for rank in range(4)] == [10] * 4


@pytest.mark.parametrize('is_sync', [True, False])
def test_after_total_frames_there_is_no_next_batch(ray: FakeRay, is_sync: bool) -> None:
    c = collector_of(1, total_frames=12, sync=is_sync)
    batches = iter(c)
    assert [len(next(batches)) for _ in range(2)] == [6, 6]
    with pytest.raises(StopIteration):
        next(batches)
    with pytest.raises(ValueError, match='all of the total_frames=12 were delivered'):
        c.next()
    assert list(c) == []
    assert len(c.collect(4)) == 4 and is_conserved(c), 'who asks for more by number gets it'


def test_after_shutdown_nothing_touches_ray_and_everything_is_counted(ray: FakeRay) -> None:
    c = collector_of(2, max_in_flight=2)
    c.next()
    ray.now += 100
    c.next()
    state = c.state_dict()
    c.next()
    c.shutdown()
    ray.is_ended = True
    c.shutdown()
    c.close()
    assert c.lost > 0 and is_conserved(c) and c._pool.under_way == 0
    for use in (
        c.next,
        c.update_policy_weights_,
        c.add_collectors,
        c.reset_env,
        c.settle,
        c.state_dict,
        lambda: c.collect(3),
        lambda: next(iter(c)),
        lambda: c.set_seed(1),
        lambda: c.remove_collectors([0]),
        lambda: c.load_state_dict(state),
    ):
        with pytest.raises(ValueError, match='were ended'):
            use()
    assert [actor.rank for actor in c.remote_collectors()] == [0, 1] and is_conserved(c)
