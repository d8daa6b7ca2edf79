"""The running tasks of a commander, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rlframe.errors import MessageError
from rlframe.parallel.transport.messages import Task
from rlframe.registry import nearest
from rlframe.utils import schema
from rlframe.utils.schema import COUNT, TEXT, Schema, check_state

RANDOM_PLAYER = 'random'
"""Name of the policy that chooses legal actions at random; it has no weights."""


class Situation(NamedTuple):
    """The progress of an experiment when its coordinator asks what to do next."""

    envstep: int = 0
    """Env steps whose data arrived."""
    train_iter: int = 0
    """Train iterations of which the learner reported."""
    version: int = -1
    """Newest version of the learner's weights that collectors can fetch; -1: none yet."""
    updates_due: int = 0
    """Updates that the learner still owes for the data of tasks of kind ``collect``; 0 while the buffer has too few."""
    seconds: float = 0.0
    """Duration of the experiment, interruptions excluded."""
    spent: bool = False
    """Whether a budget of the run is spent, so that no data are collected any more."""
    learn_info: Mapping[str, Any] = {}
    """Further information of the learner for the settings of the policy."""

    @property
    def is_over(self) -> bool:
        """Whether a budget is spent and the learner has used all data, so that only the last evaluation remains."""
        return self.spent and not self.updates_due


class Snapshot(NamedTuple):
    """A request to keep a copy of the newest weights of a policy under another name."""

    policy: str
    """Name of the policy that is trained."""
    name: str
    """Name of the copy, as in ``Task.policies``."""


class Running(NamedTuple):
    """A task that a worker has."""

    job: Task
    worker: str
    parts: int
    """Parts of its data that arrived."""
    train_iter: int
    """Train iterations when the task was given."""


class RunningTasks:
    """The running tasks of one role, up to a number that may change meanwhile.

    Args:
        space: Number of tasks that may run at the same time; those that run when it is lowered are not affected.
    """

    def __init__(self, space: int) -> None:
        self.space = space
        """Number of tasks that may run at the same time."""
        self._running: dict[str, Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    @property
    def by_id(self) -> dict[str, Running]:
        """A copy of all tasks, in the order in which they were given."""
        return dict(self._running)

    @property
    def is_full(self) -> bool:
        """Whether no further task may run."""
        return len(self) >= self.space

    def has(self, kind: str) -> bool:
        """Returns whether a task of a kind is running."""
        return any(running.job.kind == kind for running in self._running.values())

    def held_by(self, worker: str) -> list[str]:
        """Returns the ids of a worker's tasks."""
        return [task for task, running in self._running.items() if running.worker == worker]

    def begin(self, job: Task, worker: str, train_iter: int) -> None:
        """Adds a task; the space must not be full."""
        assert not self.is_full
        self._running[job.task] = Running(job, worker, 0, train_iter)

    def find(self, task_id: str) -> Running:
        """Returns a task.

        Raises:
            MessageError: If no such task is running.
        """
        if task_id in self._running:
            return self._running[task_id]
        raise MessageError(
            f'no such task is running.{nearest(task_id, self._running)}',
            where='task',
            got=task_id,
            expected=f'one of {sorted(self._running)}',
            remedy='It was finished or given up; ask for the next one.',
        )

    def count_part(self, task_id: str) -> Running:
        """Counts a part of a task and returns the task; raises like ``find``."""
        running = self.find(task_id)
        self._running[task_id] = running._replace(parts=running.parts + 1)
        return self._running[task_id]

    def end(self, task_id: str) -> None:
        """Removes a task; raises like ``find``."""
        self.find(task_id)
        del self._running[task_id]

    SCHEMA: Schema = {
        'space': COUNT,
        'running': schema.list_of({'job': Task.SCHEMA, 'worker': TEXT, 'parts': COUNT, 'train_iter': COUNT}),
    }

    def state_dict(self) -> dict[str, Any]:
        """Returns the space and all tasks."""
        running = [{**running._asdict(), 'job': vars(running.job)} for running in self._running.values()]
        return {'space': self.space, 'running': running}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        check_state(state, self.SCHEMA)
        self.space = state['space']
        jobs = [(Task(**saved['job']), saved) for saved in state['running']]
        self._running = {job.task: Running(**{**saved, 'job': job}) for job, saved in jobs}
