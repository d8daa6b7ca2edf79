"""NaiveCommander: gives the same tasks again and again, for tests of coordinators and workers."""

from __future__ import annotations

from typing import Any

from rlframe.registry import PARALLEL_COMMANDER_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker.commanders.base_parallel_commander import BaseParallelCommander, ParallelCommanderConfig
from rlframe.worker.commanders.jobs import Job, Situation


class NaiveConfig(ParallelCommanderConfig):
    """Options of ``NaiveCommander``."""

    eps: float
    parts: int


@PARALLEL_COMMANDER_REGISTRY.register('naive')
class NaiveCommander(BaseParallelCommander):
    """Lets collectors collect and learners learn, with fixed names and settings, and never evaluates."""

    _cfg: NaiveConfig
    config = dict(
        eps=Field(0.9, range='[0, 1]', doc='given to the collectors'),
        parts=Field(
            1, range='[0, inf)', unit='parts', doc='of data in a task of a collector; 0: until the run ends'
        ),
    )

    def settings(self, situation: Situation) -> dict[str, Any]:
        return {'eps': self._cfg.eps}

    def _next_collector_job(self, situation: Situation) -> Job | None:
        if situation.spent:
            return None
        settings = self.settings(situation)
        name, parts = self._name_task('collect'), self._cfg.parts
        return Job(name, 'collect', ('test',), (True,), 'test', parts=parts, settings=settings)

    def _next_learner_job(self, situation: Situation) -> Job | None:
        return (
            None if situation.is_over else Job(self._name_task('learn'), 'learn', ('test',), (True,), 'test')
        )
