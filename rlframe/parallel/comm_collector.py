"""BaseCommCollector: connects a parallel collector with a coordinator over any transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from rlframe.errors import RLFrameError
from rlframe.parallel.base_parallel_collector import BaseParallelCollector
from rlframe.parallel.comm_worker import CommWorker
from rlframe.parallel.held_weights import TaskAbandoned
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.transport.messages import AskWeights, Collected, Finished, Taken, Task, Weights
from rlframe.registry import COMM_COLLECTOR_REGISTRY


@COMM_COLLECTOR_REGISTRY.register('in_process')
class BaseCommCollector(CommWorker):
    """Asks for tasks, lets a parallel collector work on them, and sends its data: one request for each part.

    Rows are counted: ``produced == pushed + dropped``. Rows without a confirmation count as dropped here, even if only
    the confirmation was lost.

    The collector works on the tasks; further arguments are those of ``CommWorker``.
    """

    role = 'collector'

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None = None,
        *,
        collector: BaseParallelCollector | None = None,
        **given: Any,
    ) -> None:
        super().__init__(cfg, **given)
        self._collector = collector = ZerglingParallelCollector() if collector is None else collector
        self.pushed, self.dropped = 0, 0
        """Training samples or episodes that the coordinator took, and others."""
        self._stepdata: Any = None
        collector.comm = self

    @property
    def collector_uid(self) -> str:
        """The collector's id in the run; empty before it has joined."""
        return self._membership.worker if self._membership is not None else ''

    @property
    def produced(self) -> int:
        return self._collector.produced

    @property
    def progress(self) -> int:
        return self._collector.steps

    # what the parallel collector asks for

    def get_policy_update_info(self, path: str) -> Any:
        """Returns the newest weights of a policy, by its name; None if there are none."""
        return self.newer_weights(path, -1)[1]

    def newer_weights(self, policy: str, newer_than: int) -> tuple[Weights, Any]:
        """Returns the newest version of a policy's weights, and the weights if they are newer than a version."""
        return self._ask(AskWeights(policy, newer_than), Weights)

    def send_stepdata(self, stepdata: Any) -> None:
        """Takes the training data of the next ``send_metadata``, which sends both in one request."""
        self._stepdata = stepdata

    def send_metadata(self, metadata: Collected) -> Taken:
        """Sends the data of ``send_stepdata`` with facts about them; see ``send``."""
        data = self._stepdata
        self._stepdata = None
        return self.send(data, metadata)

    def send(self, data: Any, metadata: Collected) -> Taken:
        """Sends a part; returns what became of it."""
        taken: Taken
        try:
            taken, _ = self._ask(metadata, Taken, data)
        except RLFrameError:
            self.dropped += metadata.rows
            raise
        self.pushed += taken.pushed
        self.dropped += metadata.rows - taken.pushed
        return taken

    # the steps of a task, under DI-engine's names

    def deal_with_collector_start(self, task_info: Task) -> dict[str, str]:
        """Begins a task."""
        self._collector.begin(task_info)
        return {'message': 'collector task has started'}

    def deal_with_collector_data(self) -> bool:
        """Collects and sends one part of the task; returns whether the task goes on."""
        return self._collector.step()

    def deal_with_collector_close(self) -> dict[str, Any]:
        """Returns the facts about the task."""
        return self._collector.get_finish_info()

    def _joined(self) -> None:
        joined = self._membership
        assert joined is not None  # it has joined
        self._collector.enrol(joined.rank, joined.incarnation)

    def _work_on(self, task: Task) -> Finished:
        self.deal_with_collector_start(task)
        if self._stopped:
            raise TaskAbandoned(self._stopped)
        self._collector.start()
        why = self._collector.abandoned
        return Finished(task.task, not why, why, self.deal_with_collector_close())

    def _abandon(self, reason: str) -> None:
        task = self._task
        if task is not None:
            self._collector.abandon(task.task, reason)

    def _release(self) -> None:
        self._collector.close()
