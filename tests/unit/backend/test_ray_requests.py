"""What a RayCollector asks of which actor, on a Ray without processes."""

from __future__ import annotations

import gc
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fake_ray import NEVER, FakeRay
from ray_runs import is_conserved

from rlframe.backend.ray.collector import RayCollector
from rlframe.errors import ResourceError, WorkerLostError
from rlframe.remote.worker import failure_of
from rlframe.worker.collector.base_serial_collector import ONE


def collector_of(count: int, frames: int = 6, **given: Any) -> RayCollector:
    return RayCollector('CartPole-v1', None, frames_per_batch=frames, num_collectors=count, **given)


def ranks_of(batch: Any) -> list[int]:
    return np.unique(batch['rank']).tolist()


def test_no_actor_has_more_requests_than_it_may_and_none_is_passed_over(ray: FakeRay) -> None:
    c = collector_of(3, max_in_flight=2)
    seen = []
    for _ in range(12):
        ray.now += 100  # so that all are ready
        seen += ranks_of(c.next())
        assert is_conserved(c) and max(c._pool.load.values()) == 2 and set(c._pool.load) == {0, 1, 2}
    assert seen == [0, 1, 2] * 4


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
    assert c.add_collectors(num_collectors=2) == [3, 4]


def test_who_joins_later_acts_at_random_while_the_others_do(ray: FakeRay) -> None:
    c = collector_of(1, init_random_frames=100, sync=True)
    c.next()
    (rank,) = c.add_collectors()
    c.next()
    assert [(request.at_random, request.reset_policy) for request in ray.of(rank).requests] == [(True, True)]


def test_an_actor_that_cannot_join_leaves_everything_as_it_was(ray: FakeRay) -> None:
    c = collector_of(1)
    make = c._pool.make
    ray.answers['launch'] = failure_of(ZeroDivisionError('no such env'))
    with pytest.raises(ZeroDivisionError):
        c.add_collectors('MountainCar-v0')
    assert [slot.rank for slot in c._pool.slots.values()] == [0] and c._pool.make is make
    del ray.answers['launch']
    assert c.add_collectors(num_collectors=7) == [2, 3, 4, 5, 6, 7, 8], 'the CPU is free again'


def test_ranks_and_incarnations_go_on_from_a_state(ray: FakeRay) -> None:
    c = collector_of(2, collect_timeout=10.0)
    c.remove_collectors([1])
    c.add_collectors()
    c.next()
    c._pool.lose(0, 'it is gone')
    c.next()
    state = c.state_dict()
    c.shutdown()
    other = collector_of(2, collect_timeout=10.0)
    other.load_state_dict(state)
    assert [slot.incarnation for slot in other._pool.slots.values()] == [1, 0]
    other._pool.lose(0, 'it is gone')
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


@pytest.mark.parametrize('is_sync', [True, False])
def test_losses_that_end_the_run_are_counted_once_also_in_the_last_checkpoint(
    ray: FakeRay, is_sync: bool
) -> None:
    c = collector_of(3, sync=is_sync, collect_timeout=10.0, max_actor_restarts=0)
    c.next()
    ray.seconds = {'collect': 1.0, (2, 'collect'): NEVER}
    with pytest.raises(WorkerLostError):
        for _ in range(50):
            c.next()
    assert is_conserved(c)
    requested, delivered, lost, stale = c.state_dict()['counts']
    assert requested == delivered + lost + stale + c._ready.size and (c._pool.under_way > 0) is not is_sync


def test_the_state_of_a_lost_actor_is_taken_for_that_of_no_other_collector(ray: FakeRay) -> None:
    c = collector_of(1, sync=True, collect_timeout=10.0, max_actor_restarts=0)
    c.next()
    ray.seconds = {'collect': NEVER}
    with pytest.raises(WorkerLostError):
        c.next()
    state = c.state_dict()
    assert c.form == ONE != state['form'] and state['actors'] == [None]
    other = collector_of(1, sync=True)
    other.begin_anew(state)
    ray.seconds = {}
    ray.now += 100
    assert len(other.next()) == 6 and is_conserved(other)


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
    assert [few._pool.slots[rank].link.requests[0].target for rank in range(4)] == [10] * 4


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
        with pytest.raises(ValueError, match='have been shut down'):
            use()
    assert [slot.rank for slot in c._pool.slots.values()] == [0, 1] and is_conserved(c)


@pytest.mark.parametrize(('is_sync', 'failing'), [(True, (1, 2)), (False, (0, 1, 2))])
def test_after_one_failure_a_state_can_be_had_whatever_else_fails(
    ray: FakeRay, is_sync: bool, failing: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    c = collector_of(3, sync=is_sync)
    with mock.patch.object(ray, 'get', own_get(ray, failing)):
        with pytest.raises(ZeroDivisionError):
            c.collect(18)
        assert is_conserved(c)
        state = c.state_dict()
    assert is_conserved(c) and c._pool.under_way == 0 and len(state['actors']) == 3
    assert caplog.text.count('and then: ZeroDivisionError') == (0 if is_sync else len(failing) - 1)
    other = collector_of(3, sync=is_sync)
    other.load_state_dict(state)
    ray.now += 100
    batch = other.collect(18)
    assert len(batch) == 18 and is_conserved(other)


def own_get(ray: FakeRay, failing: tuple[int, ...]) -> Any:
    """Returns Ray's ``get`` with failures as the answers of some ranks to ``collect``."""
    get = ray.get

    def failing_get(ref: Any, timeout: float | None = None) -> Any:
        owner = next((actor for actor in ray.actors if any(ref is own for own in actor.refs)), None)
        value = get(ref, timeout)
        collected = owner is not None and owner.rank in failing and hasattr(value, 'counts')
        return failure_of(ZeroDivisionError(f'in rank {owner.rank}')) if owner and collected else value

    return failing_get


@pytest.mark.slow
def test_a_collector_that_is_deleted_gives_its_cpus_back(ray: FakeRay) -> None:
    for is_sync in (True, False):
        c = collector_of(2, frames=4, sync=is_sync)
        next(iter(c))
        del c
        gc.collect()
        assert not any(actor.is_alive for actor in ray.actors)


@pytest.mark.parametrize(('config', 'count'), [({}, 9), ({'num_gpus': 1}, 1)])
def test_more_than_the_cluster_has_is_refused_at_once(
    ray: FakeRay, config: dict[str, Any], count: int
) -> None:
    ray.nodes_have = [{'CPU': 4.0}, {'CPU': 4.0}]
    with pytest.raises(ResourceError, match='actors need'):
        collector_of(count, remote_configs=config, frames=18)
    assert ray.now == 0 and not ray.actors


@pytest.mark.parametrize('resets', [False, True])
def test_every_request_begins_with_new_episodes_only_if_that_is_asked_for(ray: FakeRay, resets: bool) -> None:
    c = collector_of(2, sync=True, reset_at_each_iter=resets)
    for _ in range(3):
        c.next()
    requests = [request for slot in c._pool.slots.values() for request in slot.link.requests]
    assert len(requests) == 6 and all(request.reset_env is resets for request in requests)
