"""What clusters do to a run: a store that is too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fault_envs import wait_until
from one_ray import OPTIONS
from ray_runs import is_conserved
from zoo import MegabyteEnv

from rlframe.worker import RayCollector

pytestmark = pytest.mark.ray


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
        with RayCollector(MegabyteEnv, **options) as c:
            for _ in range(4):
                taken.append(c.next())
                assert is_conserved(c) and c.lost == 0
            assert c.delivered == 4 * rows
        for batch in taken:
            obs, next_obs = np.asarray(batch['obs']), np.asarray(batch['next_obs'])
            assert (obs == obs[:, :1]).all() and (next_obs[:, 0] == obs[:, 0] + 1).all()
            assert (np.diff(obs[:, 0]) == 1).all()
        assert sum(batch.nbytes() for batch in taken) > 2 * OPTIONS['object_store_memory']
    assert wait_until(lambda: used() < 20e6, 120)
