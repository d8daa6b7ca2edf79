"""BaseParallelCommander: decides which tasks the workers of a coordinator get, and keeps those that run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from easydict import EasyDict

from rlframe.config.components import value_at
from rlframe.errors import ConfigError, ConfigErrors, MessageError
from rlframe.option_names import named
from rlframe.parallel.transport.messages import Task
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY
from rlframe.scores import exact_text, goal_of, number_text, reaches
from rlframe.utils.every import Every
from rlframe.utils.field import Configurable, Section, option
from rlframe.utils.schema import COUNT, FLAG, check_state

MAIN = 'main'
"""Name of the policy that is trained, and of its data."""
RANDOM_PLAYER = 'random'
"""Name of the policy that chooses legal actions at random; it has no weights."""
SECTION = 'policy.other.commander'
"""Section of a config with the options of the commander."""


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


class Running(NamedTuple):
    """A task that a worker has."""

    job: Task
    worker: str
    role: str
    """``'collector'`` or ``'learner'``."""
    parts: int
    """Parts of its data that arrived."""
    train_iter: int
    """Train iterations when the task was given."""


class ParallelCommanderConfig(Section):
    """Options of every parallel commander."""

    collector_task_space: int = option(
        1,
        range='[0, inf)',
        unit='tasks',
        doc='most tasks of collection and evaluation that run at the same time',
        may_change=True,
    )
    learner_task_space: int = option(
        1, range='[0, inf)', unit='tasks', doc='most tasks of learners that run at the same time'
    )
    eval_interval: float | None = option(
        None,
        range='(0, inf)',
        unit='seconds',
        doc='interval between two evaluations; None: evaluations depend on policy.eval.evaluator.eval_freq, not on time',
        may_change=True,
    )


class BaseParallelCommander(Configurable, ABC):
    """Decides what workers do, and learns of what they did; its coordinator owns buffers, weights and workers.

    The coordinator asks ``get_collector_task`` or ``get_learner_task`` when a worker is idle, and calls
    ``judge_collector_finish`` for each part of the data that arrives, ``update_learner_info`` for each report of a
    learner, and exactly one of ``finish_*_task`` and ``notify_fail_*_task`` when a task ends. Nothing here waits, and all
    random choices derive from ``seed``. Methods that take the id of a task raise a ``MessageError`` if no worker of that role
    has such a task. A subclass defines ``_next_collector_job`` and ``_next_learner_job``.

    Args:
        cfg: Options of the commander.
        policy: Command face of the policy, which is asked for settings such as ``eps``; None: there are none.
        seed: Seed of the experiment.
        eval_freq: Interval between two evaluations: train iterations, or a text such as ``'5000 env steps'``.
        stop_value: Mean return that ends training; ``'never'`` or None: none does.
        random_collect_size: Training samples or episodes collected at random before anything else.
    """

    _cfg: ParallelCommanderConfig
    lockstep = False
    """Whether collection and training take turns, so that results do not depend on the speed of any worker."""
    scores_returns = True
    """Whether scores are mean returns of episodes."""
    pending = 0
    """Number of evaluations without a result that a run has to wait for."""

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None = None,
        *,
        policy: Any = None,
        seed: int = 0,
        eval_freq: int | str = 1000,
        stop_value: float | str | None = None,
        random_collect_size: int = 0,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self.policy = policy
        """Command face of the policy."""
        self._seed, self._random_collect_size = seed, random_collect_size
        self._eval_freq = Every.of(eval_freq)
        self.stop_value: float | None = goal_of(stop_value)
        """Mean return that ends training, or None."""
        self.is_best = False
        """Whether the last evaluation had the highest score so far."""
        self.stopped = False
        """Whether an evaluation ended training; it stays set, and no task is given any more."""
        self.latest = math.nan
        self.best = -math.inf
        """Score of the last evaluation, and the highest one."""
        self.running: dict[str, Running] = {}
        """All running tasks by id, in the order in which they were given."""
        self._spaces = {'collector': self._cfg.collector_task_space, 'learner': self._cfg.learner_task_space}
        self._task_count = 0

    # what a subclass decides

    @abstractmethod
    def _next_collector_job(self, situation: Situation) -> Task | None:
        """Returns the job of an idle collector, or None if there is nothing to do yet."""

    @abstractmethod
    def _next_learner_job(self, situation: Situation) -> Task | None:
        """Returns the job of an idle learner, or None if there is nothing to do."""

    def _part_collected(self, running: Running, facts: Mapping[str, Any], situation: Situation) -> bool:
        """Takes notice of a part of a collector's task; returns whether the task ends early."""
        return False

    def _collector_ended(self, running: Running, facts: Mapping[str, Any] | None) -> None:
        """Takes notice of the end of a collector's task; ``facts`` is None if it failed."""

    def _learned(self, running: Running, situation: Situation) -> str | None:
        """Takes notice of a learner's progress; returns a name for a copy of the newest weights, as in ``Task.policies``."""
        return None

    # what a coordinator asks

    def get_collector_task(self, worker: str, situation: Situation) -> Task | None:
        """Returns a task for an idle collector, or None if there is nothing to do yet.

        The task runs until ``finish_collector_task`` or ``notify_fail_collector_task`` ends it.
        """
        return self._give(worker, situation, 'collector', self._next_collector_job)

    def get_learner_task(self, worker: str, situation: Situation) -> Task | None:
        """Returns a task for an idle learner, or None if there is nothing to do yet."""
        return self._give(worker, situation, 'learner', self._next_learner_job)

    def _give(
        self, worker: str, situation: Situation, role: str, choose: Callable[[Situation], Task | None]
    ) -> Task | None:
        is_full = len(self._tasks_of(role)) >= self._spaces[role]
        job = None if self.stopped or is_full else choose(situation)
        if job is not None:
            self.running[job.task] = Running(job, worker, role, 0, situation.train_iter)
        return job

    def _tasks_of(self, role: str) -> list[Running]:
        return [running for running in self.running.values() if running.role == role]

    def _has(self, kind: str) -> bool:
        """Returns whether a task of a kind is running."""
        return any(running.job.kind == kind for running in self.running.values())

    def _find(self, task_id: str, role: str) -> Running:
        """Returns a task of a role."""
        found = self.running.get(task_id)
        if found is None or found.role != role:
            raise MessageError('no such task is running', where='task', got=task_id)
        return found

    def judge_collector_finish(self, task_id: str, info: Mapping[str, Any], situation: Situation) -> bool:
        """Counts a part of a collector's task, which ``info`` is about, and returns whether the task ends with it."""
        running = self._find(task_id, 'collector')
        running = self.running[task_id] = running._replace(parts=running.parts + 1)
        is_enough = self._part_collected(running, info, situation)
        is_last = 0 < running.job.parts <= running.parts
        return self.stopped or situation.spent or is_last or is_enough

    def judge_learner_finish(self, task_id: str, info: Mapping[str, Any], situation: Situation) -> bool:
        """Returns whether a learner's task is over."""
        self._find(task_id, 'learner')
        return self.stopped or situation.is_over

    def finish_collector_task(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Ends a task that a collector completed, and returns whether training is over.

        Without the necessary facts the task counts as failed: of an evaluation ``score``, and ``train_iter`` of the
        evaluated weights.

        Raises:
            MessageError: If a fact is missing.
        """
        running = self._find(task_id, 'collector')
        try:
            self._collector_ended(running, finished_task)
        except MessageError:
            self.notify_fail_collector_task(task_id)
            raise
        del self.running[task_id]
        return self.stopped

    def finish_learner_task(self, task_id: str, finished_task: Mapping[str, Any]) -> str:
        """Ends a task that a learner completed, and returns the name of its replay buffer."""
        running = self._find(task_id, 'learner')
        del self.running[task_id]
        return running.job.buffer

    def notify_fail_collector_task(self, task_id: str) -> None:
        """Ends a task that a collector did not complete; it is given again when its turn comes."""
        self._collector_ended(self._find(task_id, 'collector'), None)
        del self.running[task_id]

    def notify_fail_learner_task(self, task_id: str) -> None:
        """Ends a task that a learner did not complete; another learner continues it."""
        self._find(task_id, 'learner')
        del self.running[task_id]

    def update_learner_info(self, task_id: str, info: Mapping[str, Any], situation: Situation) -> str | None:
        """Takes notice of a learner's progress; returns the name of a copy of the weights to keep from now on, if any."""
        return self._learned(self._find(task_id, 'learner'), situation)

    @property
    def collector_places(self) -> int:
        """Number of collectors that may work at the same time."""
        return max(self._spaces['collector'], len(self._tasks_of('collector')))

    def increase_collector_task_space(self) -> None:
        """Lets one more collector work at the same time."""
        self._spaces['collector'] += 1

    def decrease_collector_task_space(self) -> None:
        """Lets one collector fewer work at the same time; running tasks are not affected.

        Raises:
            ValueError: If there is no place to remove.
        """
        if not self._spaces['collector']:
            raise ValueError('a place was removed from a space that has none left')
        self._spaces['collector'] -= 1

    def settings(self, situation: Situation) -> dict[str, Any]:
        """Returns the arguments of the collectors' policy, such as ``eps``."""
        if self.policy is None:
            return {}
        info = {'learner_step': situation.train_iter, **situation.learn_info, 'envstep': situation.envstep}
        return dict(self.policy.get_setting_collect(info))

    def is_complete(self, situation: Situation) -> bool:
        """Returns whether nothing remains to be done."""
        return self.stopped or (situation.is_over and not self._tasks_of('collector'))

    @property
    def kept_policies(self) -> list[str]:
        """Names of all policies with weights that tasks may name from now on; others need not be kept."""
        named = {name for running in self.running.values() for name in running.job.policies}
        return sorted(named - {RANDOM_PLAYER})

    @property
    def goal(self) -> str:
        """What ends training, in words; empty if only a budget does."""
        return '' if self.stop_value is None else exact_text(self.stop_value)

    def reached(self, score: float) -> bool:
        """Returns whether a score reaches ``stop_value``."""
        return self.stop_value is not None and reaches(score, self.stop_value)

    def describe(self, score: float) -> str:
        """Returns a score of an evaluation as text; empty if there is none."""
        return number_text(score) if math.isfinite(score) else ''

    def metrics(self) -> dict[str, float]:
        """Returns values to be logged, by name."""
        return {}

    def table(self) -> dict[str, Any]:
        """Returns facts about the players, as values for a JSON file; empty if there is only one."""
        return {}

    def _name_task(self, kind: str) -> str:
        """Returns the id of a new task."""
        self._task_count += 1
        return f'{kind}_{self._task_count}'

    # state

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that later decisions depend on, as if all workers had left."""
        return {'task_count': self._task_count, 'stopped': self.stopped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'task_count': COUNT, 'stopped': FLAG})
        self._task_count, self.stopped = state['task_count'], state['stopped']


def create_parallel_commander(cfg: Mapping[str, Any] | str, **kwargs: Any) -> BaseParallelCommander:
    """Builds the commander of a whole config, which ``policy.other.commander.type`` names.

    Args:
        cfg: The whole main config, or the name of a commander.
        kwargs: Further arguments of the constructor, such as ``policy``, or other values of those that the config gives.

    Raises:
        RegistryError: If no commander has that name; the closest one is named.
        ConfigError: If an option is unknown or invalid; with its dotted key.
    """
    if isinstance(cfg, str):
        section, kwargs = named(PARALLEL_COMMANDER_REGISTRY, cfg, kwargs)
        return PARALLEL_COMMANDER_REGISTRY.build(section, section, **kwargs)
    section = value_in(cfg, SECTION, {})
    goal = value_in(cfg, 'env.stop_value', None)
    given = {
        'seed': cfg.get('seed') or 0,
        'eval_freq': value_in(cfg, 'policy.eval.evaluator.eval_freq', 1000),
        'stop_value': value_in(cfg, 'policy.eval.evaluator.stop_value', goal),
        'random_collect_size': value_in(cfg, 'policy.random_collect_size', 0),
    }
    try:
        if 'type' not in section:
            section = {**section, 'type': 'solo'}
        return PARALLEL_COMMANDER_REGISTRY.build(section, section, **{**given, **kwargs})
    except ConfigErrors as errors:
        for error in errors.errors:
            error.where = f'{SECTION}.{error.where}'
        raise
    except ConfigError as error:
        error.where = f'{SECTION}.{error.where or "type"}'
        raise


def value_in(cfg: Mapping[str, Any], key: str, default: Any) -> Any:
    """Returns the value of a dotted key, or the default if it is missing or None."""
    value = value_at(cfg, key)
    return default if value is None else value
