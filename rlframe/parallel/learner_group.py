"""LearnerGroup: the learners of an aggregator, and what they do in a round."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.errors import RequestRefusedError, WorkerLostError
from rlframe.parallel.coordinator.workers import Answer, RequestHandler, Worker, WorkerTable
from rlframe.parallel.held_weights import AVERAGED
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply, Server, joined
from rlframe.utils.options import DeadlinesConfig

OF_THE_FIRST = ('learner_step', 'train_iter', 'learner_done', 'buffer_id', 'task_id')
"""Entries of a report that are those of the first learner."""


class Share(NamedTuple):
    """What a learner trains on in a round."""

    data: Any
    rows: int
    """Its size, over all batches."""


def batches_of(data: Any, count: int) -> list[Any]:
    """Returns the batches of a payload, which are sent as one if there are several."""
    if isinstance(data, list) or count <= 1:
        return data if isinstance(data, list) and count > 1 else [data]
    return [data[rows] for rows in np.array_split(np.arange(len(data)), count)]


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
    return [_share(batches, first, learners) for first in range(learners)]


def _share(batches: Sequence[Any], first: int, step: int) -> Share:
    parts = [_rows(batch, range(first, len(batch), step)) for batch in batches]
    rows = sum(len(part) for part in parts)
    if len(parts) == 1:
        return Share(parts[0], rows)
    return Share(parts if isinstance(parts[0], list) else Batch.cat(parts), rows)


def _rows(batch: Any, places: range) -> Any:
    return [batch[i] for i in places] if isinstance(batch, list) else batch[np.asarray(places)]


def average(trees: Sequence[Any], shares: Sequence[float]) -> Any:
    """Returns the weighted mean of each tensor of floating-point numbers; all else is that of the first tree.

    Args:
        trees: Trees of the same structure; a single one is returned itself.
        shares: Weight of each tree; they add up to 1.

    Source:
        McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), algorithm 1.
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


def merged_info(infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the reports of several learners as one: numbers are averaged, lists and arrays are concatenated.

    Counts and names (``OF_THE_FIRST``), flags and texts are those of the first; dicts are merged key by key.
    """
    merged: dict[str, Any] = {}
    for name, first in (infos[0] if infos else {}).items():
        values = [info[name] for info in infos if name in info]
        merged[name] = first if name in OF_THE_FIRST else _merged(values)
    return merged


def _merged(values: Sequence[Any]) -> Any:
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, Mapping):
        return merged_info(values)
    if isinstance(first, list | tuple):
        return [item for value in values for item in value]
    if isinstance(first, np.ndarray) and first.ndim:
        return np.concatenate(values)
    if isinstance(first, bool) or not isinstance(first, int | float | np.number):
        return first
    return float(np.mean(values))


def networks_in(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what learners have in common after a round, of the weights that one of them published."""
    named = weights[AVERAGED].items()
    return {name: weights[name] if network is None else network for name, network in named}


def with_networks(state: Mapping[str, Any], networks: Mapping[str, Any], train_iter: int) -> dict[str, Any]:
    """Returns the state of a learner with the networks and the train iterations of the whole group."""
    progress = {**state['progress'], 'train_iter': train_iter}
    return {**state, 'policy': {**state['policy'], **networks}, 'progress': progress}


TICK = 0.02
"""Seconds between two looks at the deadlines while learners work."""

logger = logging.getLogger('rlframe.aggregator')


class Round(NamedTuple):
    """Training data for all learners."""

    data: Any
    batches: int
    """Number of batches in them."""
    envstep: int
    settings: Mapping[str, Any]
    extras: Mapping[str, Any]


@dataclasses.dataclass
class Member:
    """A learner that has joined, and what it did in the current round."""

    worker: Worker
    has: int = -1
    """Number of the networks that it has."""
    share: Share | None = None
    """What it trains on; None if it does not take part."""
    is_given: bool = False
    """Whether it has got its share."""
    is_done: bool = False
    """Whether it has used its share, or has ended its task."""
    is_lost: bool = False
    """Whether it was lost or gave up, so that what it did in the round does not count."""
    may_begin: bool = False
    """Whether there is a state for it to begin from, while others are training."""
    owes_state: bool = False
    """Whether it was asked for its state, which has not come."""
    weights: Any = None
    """What it published last."""
    train_iter: int = 0
    """Its train iterations, and those when the round began."""
    before: int = 0
    batches: int = 0
    """Batches that it used in this round."""
    infos: list[Mapping[str, float]] = dataclasses.field(default_factory=list)
    priorities: list[Any] = dataclasses.field(default_factory=list)
    asked: m.AskData | None = None
    """Its last request for data; None before the first."""

    def begin_report(self, batches: int) -> None:
        """Begins the next report: ``batches`` and all that came with them have been reported."""
        self.before, self.batches = self.train_iter, self.batches - batches
        self.infos, self.priorities = [], []


class State(NamedTuple):
    """The state of a learner, which has arrived."""

    message: m.PutState
    state: Any
    member: Member


class LearnerGroup(RequestHandler):
    """Answers learners as a coordinator does, and gives each its share of a round; it decides nothing else.

    Args:
        cfg: Deadlines.
        server: The end of a transport that the learners join.
        fingerprint: Hash of the part of the config that all roles share.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self, cfg: DeadlinesConfig, server: Server, fingerprint: str, clock: Callable[[], float] = monotonic
    ) -> None:
        self._cfg, self._server = cfg, server
        super().__init__(WorkerTable(cfg.worker_deadline, clock), fingerprint)
        self._changed = threading.Condition(self.lock)
        self.members: dict[str, Member] = {}
        """All learners that are present, in the order of joining."""
        self._task: m.Task | None = None
        self._ended, self._leaves, self._is_abandoned = '', '', False
        self._round: Round = Round(None, 0, 0, {}, {})
        self.networks: Mapping[str, Any] = {}
        """The networks that all learners have to have, and their number."""
        self.number = 0
        self.state: Any = None
        """State from which a learner that joins begins; None: from its own."""
        self._is_training = False
        self.wants_state = False
        """Whether the first learner is to send its state."""
        self.states: list[State] = []
        """States of the first learner that have arrived."""

    # what an aggregator does with it

    @property
    def working(self) -> list[Member]:
        """The learners that have the task, by rank."""
        found = [member for member in self.members.values() if member.worker.task]
        return sorted(found, key=lambda member: member.worker.rank)

    @property
    def ready(self) -> list[Member]:
        """The learners that have the task, have published their first weights, and have asked for data."""
        return [member for member in self.working if member.weights is not None and member.asked is not None]

    @property
    def taking_part(self) -> list[Member]:
        """The learners that have a share of the current round."""
        return [member for member in self.working if member.share is not None]

    @property
    def progress(self) -> int:
        """A number that grows while learners work."""
        return sum(member.worker.beat.train_iter for member in self.members.values() if member.worker.beat)

    def begin(self, task: m.Task, state: Any) -> None:
        """Gives a task to all learners, who begin from a state, if there is one."""
        with self.lock:
            settings = {**task.settings, AVERAGED: True}
            self._task = m.Task(**{**vars(task), 'settings': settings})
            self._ended, self._is_abandoned = '', False
            self.state, self._is_training, self.wants_state, self.states = state, False, False, []
            for member in self.members.values():
                member.weights, member.asked, member.has, member.may_begin = None, None, -1, False

    def hand_out(self, data: Round) -> list[Member]:
        """Begins a round: divides its data among the learners that are ready; returns those that get a share."""
        with self.lock:
            self._round, self._is_training = data, True
            for member in self.members.values():
                member.share, member.is_given, member.is_done = None, False, False
                member.infos, member.priorities, member.batches = [], [], 0
            ready = self.ready
            shares = shares_of(data.data, data.batches, len(ready)) if ready else []
            for member, share in zip(ready, shares, strict=False):
                member.share, member.before = share, member.train_iter
            return self.taking_part

    def take_networks(self, networks: Mapping[str, Any], owner: Member | None) -> None:
        """Takes the networks that all learners have to have; the owner has them already."""
        with self.lock:
            self.networks, self.number = networks, self.number + 1
            if owner is not None:
                owner.has = self.number

    def take_state(self, state: Any) -> None:
        """Takes a new state for learners that join; those that wait may begin."""
        with self.lock:
            self.state = state
            for member in self.members.values():
                member.may_begin = True

    def end_task(self, reason: str, is_abandoned: bool) -> None:
        """Ends the task of all learners: after the current round, or at once if it is abandoned."""
        with self.lock:
            self._task, self._ended, self._is_abandoned = None, reason, is_abandoned

    def leave(self, reason: str) -> None:
        """Tells all learners to leave."""
        with self.lock:
            self._leaves = self._leaves or reason

    def wait_until(
        self, condition: Callable[[], bool], check: Callable[[], Any], seconds: float = 1e9
    ) -> bool:
        """Waits for the learners; those whose deadline passes are lost.

        Args:
            condition: What is waited for; called while no request is answered.
            check: Called meanwhile; an exception that it raises ends the waiting.
            seconds: How long to wait at most.

        Returns:
            Whether the condition is fulfilled.

        Raises:
            WorkerLostError: If there has been no learner for too long.
        """
        end = monotonic() + seconds
        with self._changed:
            while not condition():
                self.raise_failure()
                check()
                self._look_for_lost()
                if monotonic() >= end:
                    return condition()
                self._changed.wait(min(TICK, end - monotonic()))
        return True

    def wait_until_empty(self, seconds: float) -> None:
        """Waits until all learners have left."""
        with self._changed:
            self._changed.wait_for(lambda: not self.members, seconds)

    def _look_for_lost(self) -> None:
        limits = self._cfg
        for worker in self.workers.silent():
            self._lose(worker, f'no sign of life for {limits.worker_deadline:g} s')
        for worker in self.workers.stuck(limits.stall_deadline):
            member = self.members[worker.id]
            if member.owes_state or (member.is_given and not member.is_done):
                self._lose(worker, f'no update for {limits.stall_deadline:g} s')
        if (seconds := self.workers.missing('learner')) > limits.role_deadline:
            lost = '; lost: ' + '; '.join(self.workers.lost[-3:]) if self.workers.lost else ''
            raise WorkerLostError(
                f'the aggregator has had no learner for {seconds:.0f} s{lost}',
                where='aggregator.role_deadline',
                remedy=f'Start one: python -m rlframe.entry -m learner --join {self._server.address} -c CONFIG.',
            )

    def _lose(self, worker: Worker, cause: str) -> None:
        if cause:
            logger.warning('%s is lost: %s', worker, cause)
        member = self.members.pop(worker.id, None)
        if member is not None:
            member.is_lost = member.is_lost or cause != ''
            self._end(member)
        self.workers.leave(worker.id, cause)
        self._server.forget(worker.id)

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
            self._lose(before, 'it joined again')
        worker = self.workers.join(message, session)
        self.members[worker.id] = Member(worker)
        self._changed.notify_all()
        limits = self._cfg
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
        wait, member = self._cfg.wait, self.members[worker.id]
        if worker.task:  # it never got its task, or lost it
            self._end(member)
        if self._leaves:
            return m.Wait(wait, True, self._leaves)
        if self._task is None:
            return m.Wait(wait, False, 'nothing to do yet')
        if self._is_training and self.ready and not member.may_begin:
            self.wants_state = True
            return m.Wait(wait, False, 'it joins with the next round')
        self.workers.give(worker, self._task.task)
        self._changed.notify_all()
        return self._task

    def _ask_weights(self, worker: Worker, message: m.AskWeights, _: Any) -> Reply:
        if self.state is None or self._task is None or message.policy != f'{self._task.policies[0]}.state':
            return Reply(m.Weights(message.policy, -1, 0))
        train_iter = int(self.state['progress']['train_iter'])
        return Reply(m.Weights(message.policy, train_iter, train_iter), self.state)

    def _put_weights(self, worker: Worker, message: m.PutWeights, payload: Any) -> m.Orders:
        member = self.members[worker.id]
        member.weights, member.train_iter = payload, message.train_iter
        self._changed.notify_all()
        return self._orders(worker)

    def _ask_data(self, worker: Worker, message: m.AskData, _: Any) -> m.Wait | Reply:
        wait, member = self._cfg.wait, self.members[worker.id]
        if message.task != worker.task or self._task is None or message.task != self._task.task:
            return m.Wait(wait, True, self._ended or 'the task is over')
        member.asked = message
        self._changed.notify_all()
        if member.share is None or member.is_given:
            return m.Wait(wait, False, 'no data yet')
        data, extras = self._round, self._round.extras
        member.is_given = True
        self.workers.give(worker, worker.task)
        if member.has != self.number and self.networks:
            extras = {**extras, AVERAGED: self.networks}
        member.has = self.number
        return Reply(
            m.Data(data.batches, data.envstep, dict(data.settings)), joined(member.share.data, extras)
        )

    def _learn_info(self, worker: Worker, message: m.LearnInfo, payload: Any) -> m.Orders:
        member, save = self.members[worker.id], -1
        if message.task == worker.task:
            member.train_iter, member.batches = message.train_iter, member.batches + message.batches
            member.infos.append(message.info)
            if payload is not None:
                member.priorities.append(payload)
            member.is_done = member.is_given and member.batches >= self._round.batches
            if self.wants_state and member.is_done and member is self.taking_part[0]:
                save, self.wants_state, member.owes_state = message.train_iter, False, True
        self._changed.notify_all()
        return self._orders(worker, save)

    def _put_state(self, worker: Worker, message: m.PutState, payload: Any) -> m.Orders:
        member = self.members[worker.id]
        member.owes_state = False
        if self.working and member is self.working[0]:
            self.states.append(State(message, payload, member))
        self._changed.notify_all()
        return self._orders(worker)

    def _finished(self, worker: Worker, message: m.Finished, _: Any) -> m.Orders:
        if message.task == worker.task:
            if not message.completed:
                logger.warning('%s gave up %s: %s', worker, message.task, message.reason)
                self.members[worker.id].is_lost = not self._ended
            self._end(self.members[worker.id])
        return self._orders(worker)

    def _end(self, member: Member) -> None:
        member.worker.task, member.is_done, member.owes_state = '', True, False
        self._changed.notify_all()

    def _farewell(self, worker: Worker, message: m.Farewell, _: Any) -> m.Orders:
        orders = self._orders(worker)
        self._lose(worker, '')
        logger.info('%s left: %s', worker, message.reason)
        return orders
