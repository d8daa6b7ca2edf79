"""How old the weights are that collected data come from: as the formula says, limited, and named where a limit starves an actor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_ray import FakeRay
from ray_runs import is_conserved

from rlframe.backend.ray.collector import RayCollector

FRAMES = 60


class Loop:
    """A collector and a learner that makes a new version of the weights after every call.

    Args:
        ray: Where the actors are.
        actors: How many.
        given: Further arguments of the collector.
    """

    def __init__(self, ray: FakeRay, actors: int, **given: Any) -> None:
        options = {'frames_per_batch': FRAMES, 'update_after_each_batch': True, **given}
        self._ray, self._module = ray, torch.nn.Linear(4, 2)
        self.collector = RayCollector('CartPole-v1', self._module, num_collectors=actors, **options)

    def run(self, calls: int, frames: int) -> None:
        for _ in range(calls):
            self.collector.collect(frames)
            self._module.weight.data = self._module.weight.data + 1
            self._ray.now += 0.25  # the update
            assert is_conserved(self.collector)

    def staleness(self) -> tuple[float, float]:
        metrics = self.collector._more_metrics()
        return metrics['ray/staleness_mean'], metrics['ray/staleness_max']


@pytest.mark.parametrize(('actors', 'in_flight'), [(1, 2), (4, 1)])
def test_staleness_of_equal_actors_is_what_the_formula_says(
    ray: FakeRay, actors: int, in_flight: int
) -> None:
    for batches in sorted({1, actors}):
        loop = Loop(ray, actors, max_in_flight=in_flight)
        loop.run(20, FRAMES * batches)
        loop.staleness()  # what the first calls brought, before all was under way
        loop.run(60, FRAMES * batches)
        expected = max(actors * in_flight - batches, actors) / batches  # docs/scaling.md
        mean, most = loop.staleness()
        assert mean == pytest.approx(expected) and expected <= most < expected + 1
        loop.collector.shutdown()


def test_a_straggler_delivers_what_it_began_in_time(ray: FakeRay) -> None:
    ray.seconds = {'collect': 1.0, (2, 'collect'): 10.0}
    loop = Loop(ray, 3, max_staleness=3)
    loop.run(150, FRAMES)
    assert loop.collector.stale == 0 and loop.staleness()[1] > 3


def test_data_that_wait_here_for_too_long_are_discarded_also_after_a_resume(ray: FakeRay) -> None:
    def publish(loop: Loop, versions: int) -> None:
        for _ in range(versions):
            loop._module.weight.data = loop._module.weight.data + 1
            loop.collector.update_policy_weights_()

    loop = Loop(ray, 1, max_staleness=2, update_after_each_batch=False)
    loop.run(1, FRAMES)
    publish(loop, 5)  # while the next batch is collected
    loop.collector.collect(FRAMES + 1)
    state, kept = loop.collector.state_dict(), loop.collector._ready.size
    assert kept > 0 and loop.collector.stale == 0
    for versions, stale in ((2, 0), (3, kept)):
        other = Loop(ray, 1, max_staleness=2, update_after_each_batch=False)
        other.collector.load_state_dict(state)
        publish(other, versions)
        other.run(1, FRAMES)
        assert other.collector.stale == stale


def test_batches_of_an_actor_that_gets_no_new_weights_are_discarded_if_there_is_a_limit(ray: FakeRay) -> None:
    for limit in (None, 2):
        loop = Loop(ray, 2, max_staleness=limit, update_after_each_batch=False)
        for _ in range(40):
            loop.run(1, FRAMES)
            loop.collector.update_policy_weights_(worker_rank=1)
        assert (loop.collector.stale > 0) is (limit is not None)
