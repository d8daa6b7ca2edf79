"""BaseCommLearner: connects a learner with a coordinator over any transport."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import ACTING, absorb_extras, acting_of
from rlframe.data.timestep import to_array
from rlframe.parallel.comm_worker import CLOSED, CommConfig, CommWorker
from rlframe.parallel.held_weights import TaskAbandoned
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import batches_of, split
from rlframe.registry import COMM_LEARNER_REGISTRY
from rlframe.utils.field import option
from rlframe.worker.learner.base_learner import BaseLearner
from rlframe.worker.learner.learner_hook import LearnerHook


class CallHook(LearnerHook):
    """Calls ``call`` with the learner."""

    position = 'after_iter'
    call: Callable[[BaseLearner], Any]

    def __call__(self, learner: BaseLearner) -> None:
        self.call(learner)


class LearnReport:
    """Collects training variables, metrics and priorities between two reports; acts as a learner's ``tb_logger``."""

    def __init__(self) -> None:
        self._variables: Mapping[str, Any] = {}
        self._metrics: dict[str, float] = {}
        self._priorities: list[Mapping[str, Any]] = []
        self._batches = self._updates = 0

    @property
    def is_empty(self) -> bool:
        """Whether there was neither an update nor a batch since the last report."""
        return not (self._batches or self._updates)

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Keeps a metric for the next report."""
        self._metrics[tag] = float(value)

    def add(self, learner: BaseLearner) -> None:
        """Takes note of an update."""
        self._variables = learner.log_buffer['scalar']
        self._updates += 1

    def count_batch(self, learner: BaseLearner) -> None:
        """Takes note of a used batch, and of its priorities."""
        self._batches += 1
        if learner.priority_info:
            self._priorities.append(learner.priority_info)

    def take(self) -> tuple[int, dict[str, float], dict[str, Any] | None]:
        """Returns and clears the number of batches, the variables and metrics, and the priorities of all batches."""
        values = {**{name: float(value) for name, value in self._variables.items()}, **self._metrics}
        info = {name: value for name, value in values.items() if math.isfinite(value)}
        batches = self._batches
        priorities = _joined(self._priorities)
        self._variables = {}
        self._metrics = {}
        self._priorities = []
        self._batches = 0
        self._updates = 0
        return batches, info, priorities


def _joined(infos: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the priorities of several batches as those of one; None if there are none."""
    if not infos:
        return None
    return {name: np.concatenate([to_array(info[name]) for info in infos]) for name in infos[0]}


class LearnerParts(NamedTuple):
    """A learner with its policy."""

    learner: BaseLearner
    face: Any
    """Collect face of the policy, whose ``state_dict`` is what collectors get."""
    command: Any
    """Command face of the policy, which lets it follow its schedules."""


class CommLearnerConfig(CommConfig):
    """Options of ``BaseCommLearner``."""

    send_policy_freq: int = option(
        1,
        range='[1, inf)',
        unit='train iterations',
        doc='interval between two publications of the weights',
        may_change=True,
    )


class Round(NamedTuple):
    """The data of a round of updates."""

    data: Any
    batches: int
    """Number of batches in them."""
    envstep: int
    extras: Mapping[str, Any]


@COMM_LEARNER_REGISTRY.register('in_process')
class BaseCommLearner(CommWorker):
    """Asks for data, lets a learner train on them, and publishes its weights: one request for each.

    A task begins with the last state that a learner of this run sent, if there is one, and with the publication of the
    weights. Then rounds follow: data, ``BaseLearner.train`` for each batch, weights, report, and whatever the coordinator
    orders, such as the state for a checkpoint. The version of weights is their train iteration.

    ``make_learner`` creates learner and policy, from a rank and an incarnation; further arguments are those of
    ``CommWorker``.
    """

    _cfg: CommLearnerConfig
    role = 'learner'

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None = None,
        *,
        make_learner: Callable[[int, int], LearnerParts] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(cfg, **given)
        self._policy = ''
        self._interrupt = ''
        self._task_is_over = threading.Event()
        self._published_at = self._save_at = self._saved_for = -1
        self._pool: ThreadPoolExecutor | None = None  # fetches the next round, in one thread
        self._ahead: Future[Round | None] | None = None
        self._make_learner = make_learner
        self._parts: LearnerParts | None = None
        self._policy_is_due = False
        self._checkpoint_at = -1
        self._in_lockstep = False  # publishes after each round, and fetches nothing ahead
        self._report_of_round = LearnReport()

    # what a learner asks for

    @property
    def learner(self) -> BaseLearner:
        """The learner, created when it is first needed."""
        return self._made().learner

    def _made(self) -> LearnerParts:
        if self._parts is None:
            if self._make_learner is None:
                raise ValueError('this comm learner was given no make_learner')
            joined = self._membership
            place = (joined.rank, joined.incarnation) if joined is not None else (0, 0)
            self._parts = self._make_learner(*place)
            learner = self._parts.learner
            learner.checkpoint_fn = lambda name: self._send_state(m.CHECKPOINT)
            learner.get_data = self.get_data
            if learner.tb_logger is None:
                learner.tb_logger = self._report_of_round
            interrupt = CallHook('interrupt', 0, position='before_iter', call=self._check_interrupt)
            for hook in (interrupt, *self.hooks4call):
                learner.register_hook(hook)
        return self._parts

    @property
    def hooks4call(self) -> list[LearnerHook]:
        """The hooks that notice when weights are due, and collect what is to be reported."""

        def note_policy(learner: BaseLearner) -> None:
            self._policy_is_due = True

        freq = self._cfg.send_policy_freq
        return [
            CallHook('send_policy', 100, position='after_iter', call=note_policy, every=freq),
            CallHook('send_learn_info', 100, position='after_iter', call=self._report_of_round.add),
        ]

    def send_policy(self, state_dict: Mapping[str, Any]) -> None:
        """Publishes weights, which are copied."""
        train_iter = self.learner.train_iter
        self._tell(m.PutWeights(self._policy, train_iter, train_iter), copy.deepcopy(dict(state_dict)))
        self._published_at = train_iter
        self._policy_is_due = False

    def _publish(self) -> None:
        """Publishes the current weights unless they are published already."""
        parts = self._made()
        if self._published_at == parts.learner.train_iter:
            return
        weights = dict(parts.face.state_dict())
        acting = acting_of(parts.face) if self._in_lockstep else None
        if acting is not None:
            weights[ACTING] = acting.state()
        self.send_policy(weights)

    def get_data(self, batch_size: int) -> Any:
        """Returns the data of the next update; None if there are to be no more."""
        data = self._fetched_round()
        return None if data is None else batches_of(data.data, data.batches)[0]

    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        """Reports on the updates since the last report."""
        task = self._task
        if task is None or self._report_of_round.is_empty:
            return
        batches, info, priorities = self._report_of_round.take()
        self._tell(m.LearnInfo(task.task, int(learn_info['learner_step']), info, batches), priorities)

    # the steps of a task, under DI-engine's names

    def deal_with_learner_start(self, task_info: m.Task) -> dict[str, str]:
        """Begins a task: from the last state of a learner of this run, if there is one."""
        parts = self._made()
        is_first = self._policy == ''
        self._policy = task_info.policies[0]
        self._published_at = -1
        self._in_lockstep = bool(task_info.settings.get('lockstep'))
        self._report_of_round.take()  # of a task that was abandoned
        saved, state = self._ask(m.AskWeights(f'{self._policy}.state', -1), m.Weights)
        if state is not None:
            parts.learner.load_state_dict(state)
            self._logger.info('continues from train_iter %d', saved.train_iter)
        if is_first:
            parts.learner.call_hook('before_run')
        self._publish()
        return {'message': 'learner task has started'}

    def deal_with_get_data(self) -> Round | None:
        """Returns the data of the next round; None if the task is over. With a round, the next one is requested."""
        if self._in_lockstep:
            return self._fetched_round()
        self._pool = ThreadPoolExecutor(1, 'rlframe-data') if self._pool is None else self._pool
        current = (self._ahead or self._pool.submit(self._fetched_round)).result()
        self._ahead = self._pool.submit(self._fetched_round) if current is not None else None
        return current

    def deal_with_learner_learn(self, data: Round) -> dict[str, Any]:
        """Trains on the data of a round, publishes weights that are due, and reports."""
        learner = self.learner
        absorb_extras(self._made().face, data.extras)
        info = {**learner.learn_info, 'envstep': data.envstep}
        settings = self._made().command.get_setting_learn(info)  # schedules follow the env steps
        for batch in batches_of(data.data, data.batches):
            learner.train(batch, data.envstep, settings)
            self._report_of_round.count_batch(learner)
            self._check_interrupt()
        if self._policy_is_due or self._in_lockstep:
            self._publish()
        self.send_learn_info(learner.learn_info)
        if self._takes_state():
            self._send_state(m.SPARE)
        return learner.learn_info

    def deal_with_learner_close(self) -> dict[str, Any]:
        """Ends a task; returns the facts about it."""
        self._publish()
        self.learner.call_hook('after_run')
        self.send_learn_info(self.learner.learn_info)
        if self._checkpoint_at != self.learner.train_iter:
            self._send_state(m.CHECKPOINT)
        return {'train_iter': self.learner.train_iter, 'learner_done': True}

    def _send_state(self, purpose: str) -> None:
        learner = self.learner
        self._tell(m.PutState(purpose, learner.train_iter), copy.deepcopy(learner.state_dict()))
        if purpose == m.CHECKPOINT:
            self._checkpoint_at = learner.train_iter

    # rounds

    def _end_rounds(self) -> None:
        """Ends a task, and waits for the request that is ahead, as no request may outlive its task."""
        self._task_is_over.set()
        if self._ahead is not None:
            self._ahead.exception()
            self._ahead = None

    def _fetched_round(self) -> Round | None:
        """Asks for data until there are some; the learner may be training meanwhile."""
        task = self._task
        while task is not None and not self._task_is_over.is_set():
            message = m.AskData(task.task, self.learner.train_iter)
            answer, payload = self._ask(message, (m.Data, m.Wait))
            if isinstance(answer, m.Data):
                data, extras = split(payload)
                return Round(data, answer.rows, answer.envstep, extras)
            if answer.stop:
                return None
            self._task_is_over.wait(min(max(answer.seconds, 0.0), self._cfg.timeout))
        return None

    def _takes_state(self) -> bool:
        """Whether the state that the coordinator asked for is due, which is so once."""
        is_due = 0 <= self._save_at <= self.learner.train_iter and self._save_at != self._saved_for
        self._saved_for = self._save_at if is_due else self._saved_for
        return is_due

    def _check_interrupt(self, learner: BaseLearner | None = None) -> None:
        """Ends the task if it is over; called between updates, too, of which a batch may have many."""
        if self._task_is_over.is_set():
            raise TaskAbandoned(self._interrupt)

    def _abandon(self, reason: str) -> None:
        self._interrupt = reason
        self._task_is_over.set()

    def _obey(self, orders: m.Orders, task: str | None = None) -> None:
        self._save_at = orders.save
        super()._obey(orders, task)

    # running

    def _work_on(self, task: m.Task) -> m.Finished:
        self._task_is_over.clear()
        if self._stopped:
            raise TaskAbandoned(self._stopped)
        self.deal_with_learner_start(task)
        try:
            while (data := self.deal_with_get_data()) is not None:
                self.deal_with_learner_learn(data)
            self._check_interrupt()
        except TaskAbandoned:
            if self._stopped == CLOSED:  # another learner continues
                self.send_learn_info(self.learner.learn_info)
                self._send_state(m.SPARE)
            if self._stopped in ('', CLOSED):
                raise
        finally:
            self._end_rounds()
        return m.Finished(task.task, True, '', self.deal_with_learner_close())

    @property
    def progress(self) -> int:
        return self._parts.learner.train_iter if self._parts is not None else 0

    def _release(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._parts is not None:
            self._parts.learner.close()
