"""LearnerAggregator: several learners that train one policy, and that a coordinator takes for one."""

from __future__ import annotations

import copy
import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Batch
from rlframe.errors import RequestRefusedError
from rlframe.parallel.comm_learner import Round, RoundWorker, TransportLearnerConfig, batches_of
from rlframe.parallel.comm_worker import CLOSED
from rlframe.parallel.coordinator.workers import Answer, RequestHandler, Worker
from rlframe.parallel.held_weights import AVERAGED, TaskAbandoned
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.parallel.transport.base import Reply, Server, joined
from rlframe.run.machine import usable_cores
from rlframe.utils.field import option
from rlframe.utils.options import DeadlinesConfig

logger = logging.getLogger('rlframe.aggregator')

OF_THE_FIRST = ('learner_step', 'train_iter', 'learner_done', 'buffer_id', 'task_id')
"""Entries of a report that are those of the first learner."""
TICK = 0.02
"""Seconds between two looks at the deadlines while learners work."""


class AggregatorConfig(TransportLearnerConfig, DeadlinesConfig):
    """Options of ``LearnerAggregator``."""

    learner_num: int = option(
        1, range='[1, inf)', unit='learners', doc='number of learners to wait for before training begins'
    )
    start_timeout: float = option(
        60.0,
        range='[0, inf)',
        unit='seconds',
        doc='longest wait for all learners; then training begins with those that are there',
        may_change=True,
    )


class Share(NamedTuple):
    """What a learner trains on in a round."""

    data: Any
    rows: int
    """Its size, over all batches."""


def shares_of(data: Any, count: int, learners: int) -> list[Share]:
    """Divides the rows of each batch evenly: every learner gets as many batches, of fewer rows.

    Args:
        data: A payload of training data, without extras.
        count: Number of batches in it.
        learners: Number of learners. If a batch has fewer rows, as many learners get none.

    Returns:
        The shares of the learners that get one. The share of a single learner is the payload itself.
    """
    batches = batches_of(data, count)
    learners = min(learners, *(len(batch) for batch in batches)) if learners > 1 else 1
    if learners <= 1:
        return [Share(data, sum(len(batch) for batch in batches))]
    shares = []
    for first in range(learners):
        parts = [batch[first::learners] for batch in batches]
        several = parts if isinstance(data, list) else Batch.cat(parts)
        shares.append(Share(several if len(parts) > 1 else parts[0], sum(len(part) for part in parts)))
    return shares


def average(trees: Sequence[Any], shares: Sequence[float]) -> Any:
    """Returns the weighted mean of each tensor of floating-point numbers; all else is that of the first tree.

    Args:
        trees: Trees of the same structure; a single one is returned itself.
        shares: Weight of each tree; they add up to 1.
    """
    first = trees[0]
    if len(trees) == 1:
        return first
    if isinstance(first, Mapping):
        return {name: average([tree[name] for tree in trees], shares) for name in first}
    if not (hasattr(first, 'is_floating_point') and first.is_floating_point()):
        return first
    total = sum(share * tree.detach().double() for share, tree in zip(shares, trees, strict=True))
    return total.to(first.dtype)


def _merged(values: Sequence[Any]) -> Any:
    """Returns the mean of numbers, lists or arrays one after the other, and the first of anything else."""
    first = values[0]
    if isinstance(first, list | tuple):
        return [item for value in values for item in value]
    if isinstance(first, np.ndarray) and first.ndim:
        return np.concatenate(values)
    if isinstance(first, bool) or not isinstance(first, int | float | np.number):
        return first
    return first if len(values) == 1 else float(np.mean(values))


@dataclasses.dataclass(eq=False)
class Member:
    """A learner that has joined, and what it did in the current round."""

    worker: Worker
    weights: Any = None
    """What it published last in this task."""
    train_iter: int = 0
    asked: m.AskData | None = None
    """Its last request for data; None before the first."""
    share: Share | None = None
    """What it trains on; None if it does not take part."""
    is_given: bool = False
    """Whether it has got its share."""
    batches: int = 0
    """Batches that it used in this round."""
    info: dict[str, float] = dataclasses.field(default_factory=dict)
    priorities: list[Any] = dataclasses.field(default_factory=list)

    def begin_round(self, share: Share | None) -> None:
        """Forgets the round before, and gets a share of the next one."""
        self.share, self.is_given, self.batches = share, False, 0
        self.info, self.priorities = {}, []


class LearnerGroup(RequestHandler):
    """Answers learners as a coordinator does, and gives each its share of a round; it decides nothing else.

    Args:
        cfg: Deadlines.
        server: The end of a transport that the learners join.
        fingerprint: Hash of the part of the config that all roles share.
    """

    def __init__(self, cfg: DeadlinesConfig, server: Server, fingerprint: str) -> None:
        super().__init__(cfg, server, fingerprint)
        self.changed = threading.Condition(self.lock)
        """Notified when something has arrived."""
        self.members: dict[str, Member] = {}
        """All learners that are present, in the order of joining."""
        self.part: list[Member] = []
        """The learners that train, by rank; empty before they begin."""
        self.broken = ''
        """Why those that train cannot go on, as one of them was lost; empty if they can."""
        self.networks: Mapping[str, Any] = {}
        """The average, which all learners get with their next data."""
        self.state: Any = None
        """State from which learners begin a task; None: from their own."""
        self.wants_state = False
        """Whether the first learner is to send its state after this round."""
        self.sent_state: tuple[m.PutState, Any] | None = None
        """State of the first learner that has arrived."""
        self._task: m.Task | None = None
        self._ended, self._leaves, self._is_abandoned, self._awaits_state = '', '', False, False
        self._round: Round = Round(None, 0, 0, {}, {})

    # what an aggregator does with it

    @property
    def working(self) -> list[Member]:
        """The learners that have a task, by rank."""
        found = [member for member in self.members.values() if member.worker.task]
        return sorted(found, key=lambda member: member.worker.rank)

    @property
    def ready(self) -> list[Member]:
        """The learners that have the task, have published their first weights, and have asked for data."""
        return [member for member in self.working if member.weights is not None and member.asked is not None]

    def begin(self, task: m.Task, state: Any) -> None:
        """Gives a task to all learners, who begin from a state, if there is one."""
        with self.lock:
            settings = {**task.settings, AVERAGED: True}
            self._task = m.Task(**{**vars(task), 'settings': settings})
            self._ended, self._is_abandoned, self._awaits_state, self.broken = '', False, False, ''
            self.part, self.state, self.sent_state, self.wants_state = [], state, None, False
            for member in self.members.values():
                member.weights, member.asked = None, None
                member.begin_round(None)

    def hand_out(self, data: Round) -> None:
        """Begins a round: divides its data among the learners."""
        with self.lock:
            self._round = data
            shares = shares_of(data.data, data.batches, len(self.part))
            for place, member in enumerate(self.part):
                member.begin_round(shares[place] if place < len(shares) else None)

    @property
    def is_round_over(self) -> bool:
        """Whether all learners have used their shares, and the first one has sent its state if it was asked for it."""
        return not any(self._is_busy(member) for member in self.part)

    def _is_busy(self, member: Member) -> bool:
        owes_state = self._awaits_state and member is self.part[0]
        return owes_state or (member.share is not None and member.batches < self._round.batches)

    def end_task(self, reason: str, is_abandoned: bool) -> None:
        """Ends the task of all learners: after the current round, or at once if it is abandoned."""
        with self.lock:
            self._task, self._ended, self._is_abandoned, self.broken = None, reason, is_abandoned, ''

    def dismiss(self, reason: str) -> None:
        """Tells all learners to leave."""
        with self.lock:
            self._leaves = self._leaves or reason

    def wait_until(
        self, condition: Callable[[], bool], check: Callable[[], Any] | None = None, seconds: float = 1e9
    ) -> None:
        """Waits for the learners; those whose deadline passes are lost.

        Args:
            condition: What is waited for; called while no request is answered.
            check: Called meanwhile; an exception that it raises ends the waiting.
            seconds: How long to wait at most.

        Raises:
            WorkerLostError: If there has been no learner for too long.
        """
        end = monotonic() + seconds
        with self.changed:
            while not condition() and monotonic() < end:
                self.raise_failure()
                if check is not None:
                    check()
                self.lose_late()
                self.check_present('learner')
                self.changed.wait(min(TICK, seconds))

    def _lacks(self, worker: Worker) -> str:
        member = self.members[worker.id]
        return 'update' if member.is_given and self._is_busy(member) else ''

    def leave(self, worker: Worker, cause: str) -> None:
        """Removes a learner; with a cause, as one that was lost."""
        if cause:
            logger.warning('%s is lost: %s', worker, cause)
        self._end(self.members.pop(worker.id), cause or 'it left')
        self.workers.leave(worker.id, cause)
        self.server.forget(worker.id)

    def _end(self, member: Member, cause: str) -> None:
        """Ends a learner's task; if that of the group is not over, the group has to begin it again."""
        member.worker.task = ''
        if member in self.part and self._task is not None:
            self.broken = self.broken or f'{member.worker}: {cause}'
        self.changed.notify_all()

    # answers

    def _answers(self) -> Mapping[type[m.Message], Answer]:
        return {
            m.Beat: self._beat,
            m.AskTask: self._ask_task,
            m.AskWeights: self._ask_weights,
            m.PutWeights: self._put_weights,
            m.AskData: self._ask_data,
            m.LearnInfo: self._learn_info,
            m.PutState: self._put_state,
            m.Finished: self._finished,
            m.Farewell: self._farewell,
        }

    def _admit(self, message: m.Join, session: str) -> m.Joined:
        if message.role != 'learner':
            raise RequestRefusedError(
                f'{message.role} {message.name} joins the aggregator of learners',
                remedy='Join the coordinator instead.',
            )
        if (before := self.workers.holder(message, session)) is not None:
            self.leave(before, 'it joined again')
        worker = self.workers.join(message, session)
        self.members[worker.id] = Member(worker)
        self.changed.notify_all()
        limits = self._limits
        return m.Joined(
            worker.id, 'group', limits.beat_interval, limits.worker_deadline, worker.rank, worker.incarnation
        )

    def _orders(self, worker: Worker, save: int = -1, task: str | None = None) -> m.Orders:
        current = self._task.task if self._task is not None else ''
        is_over = self._is_abandoned or (current != '' and worker.task != current)
        abandon = task not in (None, '') and (task != worker.task or is_over)
        return m.Orders(self._leaves != '', abandon, save, self._leaves or self._ended)

    def _beat(self, worker: Worker, message: m.Beat, _: Any) -> m.Orders:
        self.workers.take_beat(worker, message)
        return self._orders(worker, task=message.task)

    def _ask_task(self, worker: Worker, message: m.AskTask, _: Any) -> m.Task | m.Wait:
        wait, member = self._limits.wait, self.members[worker.id]
        if worker.task:  # it never got its task, or lost it
            self._end(member, 'it lost its task')
        if self._leaves:
            return m.Wait(wait, True, self._leaves)
        if self._task is None:
            return m.Wait(wait, False, 'nothing to do yet')
        if self.part:
            return m.Wait(wait, False, 'the others have begun')
        self.workers.give(worker, self._task.task)
        self.changed.notify_all()
        return self._task

    def _ask_weights(self, worker: Worker, message: m.AskWeights, _: Any) -> Reply:
        if self.state is None or self._task is None or message.policy != f'{self._task.policies[0]}.state':
            return Reply(m.Weights(message.policy, -1, 0))
        train_iter = int(self.state['progress']['train_iter'])
        return Reply(m.Weights(message.policy, train_iter, train_iter), self.state)

    def _put_weights(self, worker: Worker, message: m.PutWeights, payload: Any) -> m.Orders:
        member = self.members[worker.id]
        member.weights, member.train_iter = payload, message.train_iter
        self.changed.notify_all()
        return self._orders(worker)

    def _ask_data(self, worker: Worker, message: m.AskData, _: Any) -> m.Wait | Reply:
        wait, member = self._limits.wait, self.members[worker.id]
        if message.task != worker.task or self._task is None or message.task != self._task.task:
            return m.Wait(wait, True, self._ended or 'the task is over')
        member.asked = message
        self.changed.notify_all()
        if member.share is None or member.is_given:
            return m.Wait(wait, False, 'no data yet')
        data, extras = self._round, self._round.extras
        member.is_given = True
        self.workers.give(worker, worker.task)
        if len(self.part) > 1:
            extras = {**extras, AVERAGED: self.networks}
        return Reply(
            m.Data(data.batches, data.envstep, dict(data.settings)), joined(member.share.data, extras)
        )

    def _learn_info(self, worker: Worker, message: m.LearnInfo, payload: Any) -> m.Orders:
        member, save = self.members[worker.id], -1
        if message.task == worker.task:
            member.train_iter, member.batches = message.train_iter, member.batches + message.batches
            member.info |= message.info
            if payload is not None:
                member.priorities.append(payload)
            if self.wants_state and member in self.part[:1] and member.batches >= self._round.batches:
                save, self.wants_state, self._awaits_state = message.train_iter, False, True
        self.changed.notify_all()
        return self._orders(worker, save)

    def _put_state(self, worker: Worker, message: m.PutState, payload: Any) -> m.Orders:
        if self.members[worker.id] in self.part[:1]:
            self.sent_state, self._awaits_state = (message, payload), False
        self.changed.notify_all()
        return self._orders(worker)

    def _finished(self, worker: Worker, message: m.Finished, _: Any) -> m.Orders:
        if message.task == worker.task:
            if not message.completed:
                logger.warning('%s gave up %s: %s', worker, message.task, message.reason)
            self._end(self.members[worker.id], message.reason)
        return self._orders(worker)

    def _farewell(self, worker: Worker, message: m.Farewell, _: Any) -> m.Orders:
        orders = self._orders(worker)
        self.leave(worker, '')
        logger.info('%s left: %s', worker, message.reason)
        return orders


class LearnerAggregator(RoundWorker):
    """Lets several learners train one policy: synchronous data parallelism by averaging parameters.

    Towards a coordinator it is one learner. Towards its learners, which are ordinary comm learners, it is a coordinator
    without collectors. For each round, it asks for data once, divides the rows of each batch evenly among the
    learners, waits until each has trained on its share, and averages their networks, weighted by rows. The average is
    published, and every learner gets it with its next data. The state of an optimizer stays with its learner. A state
    for a checkpoint is that of the first learner, with the average.

    With one learner, everything equals a run without an aggregator bit for bit; with several, this is averaging of local
    updates, as in the sources.

    A learner that is silent for ``worker_deadline``, or has data and makes no update for ``stall_deadline``, is lost. If
    one is lost or leaves, the aggregator gives up its task, and all begin again from the last state that the coordinator
    has, with those that are there after ``start_timeout``. One that joins later waits for that. Without any learner for
    ``role_deadline``, this worker ends.

    Args:
        cfg: Options.
        server: The end of a transport that the learners join; by default one for threads of this process.
        given: Further arguments of ``CommWorker``: ``transport`` or ``address``, ``name``, ``fingerprint``.

    Source:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), algorithm 1.
        Stich, Local SGD Converges Fast and Communicates Little (2019).
    """

    _cfg: AggregatorConfig

    def __init__(
        self, cfg: EasyDict | Mapping[str, Any] | None = None, *, server: Server | None = None, **given: Any
    ) -> None:
        own = self.resolve_config(cfg)
        super().__init__(own, **given)
        self.server = server if server is not None else InProcessServer()
        """The end of a transport that the learners join."""
        self._group = LearnerGroup(own, self.server, given.get('fingerprint', ''))
        self._weights, self._train_iter = dict[str, Any](), 0
        self.server.start(self._group.handle)

    # the steps of a task, under DI-engine's names

    def deal_with_get_resource(self) -> dict[str, int]:
        """Returns the number of learners, as GPUs, and the number of CPU cores."""
        return {'gpu': len(self._group.members), 'cpu': usable_cores()}

    def deal_with_learner_start(self, task: m.Task) -> dict[str, str]:
        """Begins a task with all learners, from the last state of a learner of this run, if there is one."""
        self._policy, self._published_at = task.policies[0], -1
        saved, state = self._ask(m.AskWeights(f'{self._policy}.state', -1), m.Weights)
        group, learner_num = self._group, self._cfg.learner_num
        group.begin(task, state)
        group.wait_until(lambda: len(group.ready) >= learner_num, self._check, self._cfg.start_timeout)
        group.wait_until(lambda: bool(group.ready), self._check)
        with group.lock:
            group.part = group.ready
            first = group.part[0]
            self._train_iter = max(saved.train_iter if state is not None else 0, first.train_iter)
            self._take_weights([first])
        self._publish()
        return {'message': 'learner task has started'}

    def deal_with_get_data(self, task: m.Task) -> Round | None:
        """Returns the data of the next round for all learners; None if the task is over."""
        return self._next_round()

    @property
    def _updates(self) -> int:
        return self._train_iter

    def _pause(self, seconds: float) -> None:
        self._group.wait_until(self._task_is_over.is_set, self._check, seconds)

    def _check(self) -> None:
        self._check_interrupt()
        if self._group.broken:
            raise TaskAbandoned(self._group.broken)

    def deal_with_learn(self, task: Round) -> dict[str, Any]:
        """Lets the learners train on the data of a round; publishes their average, reports, and returns the report."""
        self._check()
        group = self._group
        group.wants_state = self._takes_state() or group.wants_state
        group.hand_out(task)
        group.wait_until(lambda: group.is_round_over, self._check)
        return self._collect()

    def deal_with_learner_close(self) -> dict[str, Any]:
        """Ends the tasks of all learners, publishes and reports the rest, and returns the facts about the task."""
        self._end_learners('the task is over', is_abandoned=False)
        self._collect(is_last=True)
        return {'train_iter': self._train_iter, 'learner_done': True}

    @staticmethod
    def merge_info(info: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the reports of several learners as one: means of numbers, and all items of lists and arrays.

        Counts and names (``OF_THE_FIRST``), flags and texts are those of the first.
        """
        return {
            name: first if name in OF_THE_FIRST else _merged([one[name] for one in info if name in one])
            for name, first in (info[0] if info else {}).items()
        }

    # results of a round

    def _collect(self, is_last: bool = False) -> dict[str, Any]:
        """Averages, publishes and reports what the learners did in a round; passes on a state that came with it."""
        group, freq = self._group, self._cfg.send_policy_freq
        with group.lock:
            trained = [member for member in group.part if member.share is not None]
            if trained:
                self._train_iter = max(self._train_iter, *(member.train_iter for member in trained))
                self._take_weights(trained)
            infos = [member.info for member in trained if member.info]
            priorities = [one for member in trained for one in member.priorities]
            batches = min((member.batches for member in trained), default=0)
            for member in trained:
                member.begin_round(None)
            state, group.sent_state = group.sent_state, None
        if self._train_iter // freq > self._published_at // freq or self._cfg.lockstep or is_last:
            self._publish()
        info = self.merge_info(infos)
        if infos and self._task is not None:
            message = m.LearnInfo(self._task.task, self._train_iter, info, batches)
            self._tell(message, self.merge_info(priorities) if priorities else None)
        if state is not None:
            self._pass_on(*state)
        return info

    def _take_weights(self, trained: Sequence[Member]) -> None:
        """Averages the networks of some learners."""
        rows = [member.share.rows if member.share is not None else 1 for member in trained]
        shares = [count / sum(rows) for count in rows]
        named = [member.weights[AVERAGED] for member in trained]
        trees = [
            {name: member.weights[name] if tree is None else tree for name, tree in networks.items()}
            for member, networks in zip(trained, named, strict=True)
        ]
        networks, weights = average(trees, shares), trained[0].weights
        self._group.networks = networks
        self._weights = {name: networks.get(name, tree) for name, tree in weights.items() if name != AVERAGED}

    def _publish(self) -> None:
        """Publishes the weights unless they are published already."""
        if self._published_at == self._train_iter:
            return
        tree, at = copy.deepcopy(self._weights), self._train_iter
        self._tell(m.PutWeights(self._policy, at, at), tree)
        self._published_at = at

    def _pass_on(self, message: m.PutState, state: Mapping[str, Any]) -> None:
        """Gives the first learner's state to the coordinator, with the average."""
        at = message.train_iter
        if len(self._group.part) > 1:
            at = self._train_iter
            policy = {**state['policy'], **self._group.networks}
            state = {**state, 'policy': policy, 'progress': {**state['progress'], 'train_iter': at}}
        self._tell(m.PutState(message.purpose, at), state)

    # running

    def _work_on(self, task: m.Task) -> m.Finished:
        self._task_is_over.clear()
        if self._stopped:
            raise TaskAbandoned(self._stopped)
        try:
            self.deal_with_learner_start(task)
            while (data := self.deal_with_get_data(task)) is not None:
                self.deal_with_learn(data)
            self._check_interrupt()
        except TaskAbandoned as end:
            if self._stopped in ('', CLOSED):
                self._end_learners(str(end), is_abandoned=self._stopped == '')
                if self._stopped == CLOSED and self._group.part:
                    self._collect(is_last=True)
                raise
        finally:
            self._end_rounds()
        return m.Finished(task.task, True, '', self.deal_with_learner_close())

    def _end_learners(self, reason: str, is_abandoned: bool) -> None:
        """Ends the task of all learners, and waits until they have."""
        group = self._group
        if self._stopped:
            group.dismiss(self._stopped)
        group.end_task(reason, is_abandoned)
        group.wait_until(lambda: not group.working, seconds=self._cfg.close_timeout / 2)

    def _sizes(self, task: m.Task) -> tuple[int, int]:
        """Returns the sum of the learners' batch sizes, and the number of batches of a round."""
        with self._group.lock:
            asked = [member.asked for member in self._group.part if member.asked is not None]
        size = sum(message.batch_size for message in asked)
        return size, task.target or max((message.count for message in asked), default=1)

    def _beat(self) -> m.Beat:
        task, members = self._task, list(self._group.members.values())
        steps = sum(member.worker.beat.train_iter for member in members if member.worker.beat)
        state, name = ('idle', '') if task is None else (task.kind, task.task)
        facts = {'steps': float(steps), 'learners': float(len(members))}
        return m.Beat(state, name, 0, self._train_iter, max(self._published_at, 0), facts)

    def _release(self) -> None:
        group = self._group
        group.dismiss(self._stopped or 'the aggregator ends')
        super()._release()
        with group.lock:
            group.changed.wait_for(lambda: not group.members, self._cfg.close_timeout / 4)
        self.server.close()
