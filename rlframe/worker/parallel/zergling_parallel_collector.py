"""ZerglingParallelCollector: collects and evaluates with one policy."""

from __future__ import annotations

from typing import Any

from rlframe.errors import MessageError
from rlframe.registry import PARALLEL_COLLECTOR_REGISTRY
from rlframe.transport.messages import Task
from rlframe.worker.collector.counted import Parts
from rlframe.worker.parallel.base_parallel_collector import BaseParallelCollector
from rlframe.worker.parallel.extras import ActingExtras
from rlframe.worker.parallel.held_weights import Acting


@PARALLEL_COLLECTOR_REGISTRY.register('zergling')
class ZerglingParallelCollector(BaseParallelCollector):
    """Collects and evaluates with a single policy, which in a game acts for all players."""

    def _take_seats(self, task: Task) -> None:
        self._only_policy(task)

    def _acting(self, faces: Any, task: Task) -> list[Acting]:
        return [Acting(0, faces, self._only_policy(task))]

    def _measured(self, parts: Parts) -> ActingExtras:
        return ActingExtras(parts.trained, self._weights.in_lockstep)

    def _only_policy(self, task: Task) -> str:
        if len(task.policies) != 1:
            raise MessageError(
                "collector.type='zergling' acts with one policy",
                where='Task.policies',
                got=task.policies,
                expected='a list of one name',
                remedy="Games with several policies need the parallel collector 'marine'.",
            )
        return task.policies[0]
